//! Certificates as facts, and certificates and keys out of PEM files.

use outrider_protocol::{CertificateFacts, Timestamp, UnknownCause};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{X509Name, X509Version};

use super::Failure;

/// What a certificate says; an error when the bytes are no X.509 certificate.
pub fn facts(der: &[u8]) -> Result<CertificateFacts, Failure> {
    let (_, certificate) = X509Certificate::from_der(der)
        .map_err(|e| Failure::new(UnknownCause::InvalidAnswer, format!("no X.509 certificate: {e}")))?;
    let mut sans = Vec::new();
    if let Ok(Some(names)) = certificate.subject_alternative_name() {
        for name in &names.value.general_names {
            match name {
                GeneralName::DNSName(dns) => sans.push(printable(dns)),
                GeneralName::IPAddress(bytes) => sans.extend(ip_address(bytes)),
                _ => {}
            }
        }
    }
    Ok(CertificateFacts {
        subject: name(certificate.subject()),
        issuer: name(certificate.issuer()),
        sans,
        not_before: Timestamp::from_seconds(certificate.validity().not_before.timestamp()),
        not_after: Timestamp::from_seconds(certificate.validity().not_after.timestamp()),
        sha256: hex(&sha256(der)),
        is_ca: certificate.is_ca(),
        signature: signature(&certificate),
    })
}

/// The algorithm of its signature, by the name that `openssl x509 -text` has for it, or by its numbers.
fn signature(certificate: &X509Certificate<'_>) -> String {
    let oid = &certificate.signature_algorithm.algorithm;
    let name = match oid.as_bytes() {
        // 1.2.840.113549.1.1 (RFC 8017) and 1.2.840.10045.4 (RFC 3279, RFC 5758)
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, of_rsa] => match of_rsa {
            2 => "md2WithRSAEncryption",
            4 => "md5WithRSAEncryption",
            5 => "sha1WithRSAEncryption",
            10 => "rsassaPss",
            11 => "sha256WithRSAEncryption",
            12 => "sha384WithRSAEncryption",
            13 => "sha512WithRSAEncryption",
            _ => "",
        },
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01] => "ecdsa-with-SHA1",
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 2] => "ecdsa-with-SHA256",
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 3] => "ecdsa-with-SHA384",
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 4] => "ecdsa-with-SHA512",
        // 1.3.101.112 (RFC 8410), 1.2.840.10040.4.3 and the older number of 1.3.14.3.2.29
        [0x2b, 0x65, 0x70] => "ED25519",
        [0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x03] => "dsaWithSHA1",
        [0x2b, 0x0e, 0x03, 0x02, 0x1d] => "sha1WithRSA",
        _ => "",
    };
    if name.is_empty() { oid.to_id_string() } else { name.to_owned() }
}

/// SHA-256, hex, of the public key (SubjectPublicKeyInfo) in a certificate; `None` when it is none.
pub fn public_key(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(hex(&sha256(certificate.public_key().raw)))
}

/// SHA-256, hex, of the public half (SubjectPublicKeyInfo) of the first private key in a PEM text.
pub fn public_half(pem: &[u8]) -> Result<String, Failure> {
    let key = private_key(pem)?;
    let unsupported = || {
        Failure::new(UnknownCause::Unsupported, "a private key of a kind or size that cannot be judged here")
    };
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|_| unsupported())?;
    let half = key.public_key().ok_or_else(unsupported)?;
    Ok(hex(&sha256(&half)))
}

/// Where a certificate says that its issuer's certificate can be had (authority information access); empty when it does
/// not say or is no certificate.
pub fn issuer_at(der: &[u8]) -> String {
    use x509_parser::oid_registry::OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS as CA_ISSUERS;
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return String::new() };
    let found = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityInfoAccess(access) => {
            access.accessdescs.iter().find(|d| d.access_method == CA_ISSUERS).map(|d| &d.access_location)
        }
        _ => None,
    });
    match found {
        Some(GeneralName::URI(url)) => printable(url).chars().take(MAX_URL).collect(),
        _ => String::new(),
    }
}

/// RSA keys with fewer bits are refused by this program's TLS, and by OpenSSL from security level 2 on.
const LEAST_RSA_BITS: usize = 2048;

/// Why no handshake can succeed with this certificate at the other end, whoever signed it; none where nothing is seen.
pub fn unusable(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    if certificate.version() != X509Version::V3 {
        let version = certificate.version().0.saturating_add(1);
        return Some(format!(
            "the certificate is of X.509 version {version}, which has no names of its own; clients take version 3 only"
        ));
    }
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) if key.key_size() < LEAST_RSA_BITS => Some(format!(
            "the certificate has an RSA key of {} bits, and {LEAST_RSA_BITS} are the least that is taken",
            key.key_size()
        )),
        _ => None,
    }
}

/// Characters of a URL out of a certificate that are kept.
const MAX_URL: usize = 200;

/// SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Every certificate in a PEM text; an error when there is none or one is broken.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let blocks = CertificateDer::pem_slice_iter(pem).enumerate().map(|(before, block)| {
        block.map_err(|e| {
            let failure = Failure::new(UnknownCause::InvalidInput, pem_problem(&e));
            // The others may well be certificates.
            if before == 0 { failure } else { failure.during(format_args!("block {}", before + 1)) }
        })
    });
    let found: Vec<_> = blocks.collect::<Result<_, _>>()?;
    if found.is_empty() {
        let what = match pem {
            // The beginning of a DER sequence of more than 255 bytes.
            [0x30, 0x82, ..] => {
                "it is DER, not PEM; convert it with openssl x509 -inform der -in FILE -out FILE.pem"
            }
            _ => "no PEM certificate (-----BEGIN CERTIFICATE-----) in it",
        };
        return Err(Failure::new(UnknownCause::InvalidInput, what));
    }
    Ok(found)
}

/// What is wrong with a PEM text; its lines are not repeated, for they may be a key's.
fn pem_problem(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "not PEM: a section begins and its line -----END …----- is missing; was the file cut?".to_owned()
        }
        pem::Error::IllegalSectionStart { .. } => {
            "not PEM: a line looks like -----BEGIN …----- and is not whole; was the file cut or wrapped?"
                .to_owned()
        }
        pem::Error::Base64Decode(_) => {
            "not PEM: what stands between -----BEGIN …----- and -----END …----- is no base64".to_owned()
        }
        other => format!("not PEM: {other}"),
    }
}

/// The first private key (PKCS#8, PKCS#1 or SEC1) in a PEM text. The error never shows the content.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, Failure> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        let encrypted = [b"ENCRYPTED".as_slice(), b"Proc-Type: 4"];
        let what = if encrypted.iter().any(|mark| pem.windows(mark.len()).any(|part| part == *mark)) {
            "the private key is encrypted; give one without a passphrase"
        } else {
            "no PEM private key (PKCS#8, PKCS#1 or SEC1) in it"
        };
        Failure::new(UnknownCause::InvalidInput, what)
    })
}

fn ip_address(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(v4).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| std::net::Ipv6Addr::from(v6).to_string())
}

/// A distinguished name as RFC 4514 writes it: most specific part first, special characters escaped.
fn name(name: &X509Name<'_>) -> String {
    let mut parts: Vec<String> = name
        .iter_rdn()
        .map(|rdn| {
            let attributes: Vec<String> = rdn
                .iter()
                .map(|attribute| {
                    let oid = attribute.attr_type();
                    let key = short_name(oid.as_bytes()).map_or_else(|| oid.to_id_string(), str::to_owned);
                    let value = match attribute.as_str() {
                        Ok(text) => escape(text),
                        Err(_) => format!("#{}", hex(attribute.as_slice())),
                    };
                    format!("{key}={value}")
                })
                .collect();
            attributes.join("+")
        })
        .collect();
    parts.reverse();
    parts.join(",")
}

/// Short names of the attribute types that names are made of (RFC 4519, RFC 2985), by the DER of their identifiers. The
/// parser's own registry would tell them, and keep twenty kilobytes for all that it knows besides.
fn short_name(oid: &[u8]) -> Option<&'static str> {
    Some(match oid {
        [0x55, 0x04, of_x520] => match of_x520 {
            3 => "CN",
            4 => "surname",
            5 => "serialNumber",
            6 => "C",
            7 => "L",
            8 => "ST",
            9 => "streetAddress",
            10 => "O",
            11 => "OU",
            12 => "title",
            13 => "description",
            15 => "businessCategory",
            16 => "postalAddress",
            17 => "postalCode",
            41 => "name",
            42 => "givenName",
            43 => "initials",
            44 => "generationQualifier",
            45 => "uniqueIdentifier",
            46 => "dnQualifier",
            _ => return None,
        },
        // 0.9.2342.19200300.100.1
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 1] => "uid",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 25] => "DC",
        // 1.2.840.113549.1.9
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 1] => "Email",
        _ => return None,
    })
}

/// A name as a terminal may show it: a certificate's maker chose it.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn escape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (i, c) in value.chars().enumerate() {
        match c {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', c]),
            '#' if i == 0 => text.push_str("\\#"),
            ' ' if i == 0 || i == last => text.push_str("\\ "),
            c if c.is_control() => text.push('\u{fffd}'),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn reads_names_validity_and_kind() {
        let mut params =
            CertificateParams::new(vec!["rancher.example".into(), "10.0.0.1".into(), "fd00::1".into()])
                .unwrap();
        params.distinguished_name.push(DnType::OrganizationName, "Crew, Night");
        params.distinguished_name.push(DnType::CommonName, "rancher");
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();

        let read = facts(certificate.der()).unwrap();
        assert!(read.subject.contains("O=Crew\\, Night"), "{}", read.subject);
        assert!(read.subject.contains("CN=rancher"), "{}", read.subject);
        assert_eq!(read.subject, read.issuer);
        assert_eq!(read.sans, ["rancher.example", "10.0.0.1", "fd00::1"]);
        assert_eq!(read.not_before.to_string(), "2026-01-01T00:00:00.000Z");
        assert_eq!(read.not_after.to_string(), "2027-01-01T00:00:00.000Z");
        assert_eq!(read.sha256, hex(&sha256(certificate.der())));
        assert_eq!(read.signature, "ecdsa-with-SHA256");
        assert!(read.is_ca);
    }

    /// Made by openssl: rcgen makes neither.
    const RSA_1024: &[u8] = b"-----BEGIN CERTIFICATE-----\n\
MIIB/DCCAWWgAwIBAgIUVdxO0qFBip0vvrgsq9E+EJjDX34wDQYJKoZIhvcNAQEL\n\
BQAwEDEOMAwGA1UEAwwFc2hvcnQwHhcNMjYxMTMwMDQxMDU3WhcNMzYxMTI3MDQx\n\
MDU3WjAQMQ4wDAYDVQQDDAVzaG9ydDCBnzANBgkqhkiG9w0BAQEFAAOBjQAwgYkC\n\
gYEA2MM1QdvUfYkhNVNz6De6eYMfJKRNN3xsqhYZbsg6myaH9qZpZB6M4cqyG/P1\n\
E6FbecQrVtvdSzv4YOXYaw1rOAJGL7x7O651Qpzbiu7tTe0CfCor/sQDx9F0Oq/y\n\
rUocwR38/SLasUUJ0TXyCjH35vzny52NFA2hVHvxcqAJ2lMCAwEAAaNTMFEwHQYD\n\
VR0OBBYEFBA+gpimVAp73y03NyrPSW94u7FEMB8GA1UdIwQYMBaAFBA+gpimVAp7\n\
3y03NyrPSW94u7FEMA8GA1UdEwEB/wQFMAMBAf8wDQYJKoZIhvcNAQELBQADgYEA\n\
KW1WIxaGSQk29uIizSThrngi70cxWKddCHJllbnr/oWHJ843X2pRvizTtd72MrJg\n\
rdQ74IHNFklndBC1aXJ4qPCdGGADNZI+Me64M2hmLgxUk2UTUe9S9NlfflSWB8tf\n\
BNkoj+f4VdQ9FBt3EbrXsK1rkZQvFdZ/i1vByXMy39s=\n\
-----END CERTIFICATE-----\n";
    const VERSION_1: &[u8] = b"-----BEGIN CERTIFICATE-----\n\
MIIBFzCBvQIUMK6NkOSBZIM5zWPJRc8z6oYrl7EwCgYIKoZIzj0EAwIwDjEMMAoG\n\
A1UEAwwDb25lMB4XDTI2MTEzMDA0MTA1OFoXDTM2MTEyNzA0MTA1OFowDjEMMAoG\n\
A1UEAwwDb25lMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE2bOb8YwS3ipu2/Bx\n\
Xpxvan14cOO6Rr20bBhkkWDPmwO0uHjjeb94COW7TzvlhHoLF3MKEpqn5eEmVQC/\n\
9JZsSTAKBggqhkjOPQQDAgNJADBGAiEAjkQGaF428C6VaJvOkAKnQqg472Z6zFHG\n\
9tgl9pltp54CIQDWavvfNgSHtjMc++AH9WmyPoghgGPw+PxtEAMJm3oO1g==\n\
-----END CERTIFICATE-----\n";

    #[test]
    fn certificates_with_which_no_handshake_succeeds() {
        let why = |pem: &[u8]| unusable(&certificates(pem).unwrap()[0]);
        assert!(why(RSA_1024).unwrap().contains("RSA key of 1024 bits"));
        assert!(why(VERSION_1).unwrap().contains("X.509 version 1"));
        let good = CertificateParams::new(vec!["a.example".into()]).unwrap();
        assert_eq!(unusable(good.self_signed(&KeyPair::generate().unwrap()).unwrap().der()), None);
    }

    #[test]
    fn attributes_are_named_as_the_parsers_registry_names_them() {
        let arcs = (0..64).map(|n| vec![2, 5, 4, n]);
        let others = [1, 2, 25].map(|n| vec![0, 9, 2342, 19_200_300, 100, 1, n]);
        let mail = [1, 8].map(|n| vec![1, 2, 840, 113_549, 1, 9, n]);
        let mut named = 0;
        for arcs in arcs.chain(others).chain(mail) {
            let oid = x509_parser::der_parser::oid::Oid::from(&arcs).unwrap();
            let Some(name) = short_name(oid.as_bytes()) else { continue };
            named += 1;
            let registry = x509_parser::objects::oid_registry();
            assert_eq!(x509_parser::objects::oid2abbrev(&oid, registry), Ok(name), "{arcs:?}");
        }
        assert_eq!(named, 23);
    }

    #[test]
    fn says_when_a_file_holds_no_certificate_or_key() {
        assert!(certificates(b"hello").unwrap_err().detail.starts_with("no PEM certificate"));
        assert!(certificates(&[0x30, 0x82, 1, 0]).unwrap_err().detail.starts_with("it is DER"));
        let begin = "-----BEGIN CERTIFICATE-----\n";
        for (text, why) in [
            (format!("{begin}AAAA\n"), "END"),
            (format!("{begin}c3Vj!\n-----END CERTIFICATE-----\n"), "no base64"),
            ("-----BEGIN CERTIFICATE\nAAAA\n".to_owned(), "not whole"),
        ] {
            let said = certificates(text.as_bytes()).unwrap_err().detail;
            // No byte arrays and no content.
            assert!(said.contains(why) && !said.contains("45, 45") && !said.contains("c3Vj"), "{said}");
        }
        let encrypted = private_key(
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        );
        assert!(encrypted.unwrap_err().detail.contains("passphrase"));
        let failure = private_key(b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n").unwrap_err();
        assert_eq!(failure.cause, UnknownCause::InvalidInput);
        assert!(!failure.detail.contains("c2Vj"));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = facts(&bytes);
            let _ = issuer_at(&bytes);
            let _ = certificates(&bytes);
        }
    }
}
