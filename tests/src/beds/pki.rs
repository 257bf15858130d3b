//! Authorities, and certificates of any dates and names, as files.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// Seconds from now, before or after.
pub type Seconds = i64;
/// A day in seconds.
pub const DAY: Seconds = 86_400;

/// Who signs.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, in PEM.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The same in DER.
    pub der: Vec<u8>,
    /// Its key.
    pub key: String,
}

impl Authority {
    /// One that ends so many seconds from now.
    pub fn new(name: &str, end: Seconds) -> Result<Self> {
        Ok(Self(CertifiedIssuer::self_signed(authority(name, end)?, KeyPair::generate()?)?))
    }

    /// One below this one.
    pub fn intermediate(&self, name: &str, end: Seconds) -> Result<Self> {
        Ok(Self(CertifiedIssuer::signed_by(authority(name, end)?, KeyPair::generate()?, &self.0)?))
    }

    /// Its own certificate, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for `names`, good from and to so many seconds from now, for servers and clients.
    pub fn issue(&self, name: &str, names: &[&str], from: Seconds, to: Seconds) -> Result<Issued> {
        let mut params = CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())?;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) = (at(from), at(to));
        self.sign(params, name)
    }

    /// A client's certificate for a day, as Kubernetes knows users: a name, and the groups it is in.
    pub fn user(&self, name: &str, groups: &[&str]) -> Result<Issued> {
        let mut params = CertificateParams::new(vec![])?;
        groups.iter().for_each(|group| params.distinguished_name.push(DnType::OrganizationName, *group));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) = (at(-3600), at(DAY));
        self.sign(params, name)
    }

    fn sign(&self, mut params: CertificateParams, name: &str) -> Result<Issued> {
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Issued {
            certificate: certificate.pem(),
            der: certificate.der().to_vec(),
            key: key.serialize_pem(),
        })
    }
}

fn authority(name: &str, end: Seconds) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params.not_before, params.not_after) = (at(-3000 * DAY), at(end));
    Ok(params)
}

fn at(from_now: Seconds) -> time::OffsetDateTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(now.as_secs()).unwrap_or_default().saturating_add(from_now);
    rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

impl Issued {
    /// Writes certificate and key, replacing what lies there.
    pub fn write(&self, certificate: &Path, key: &Path) -> Result<()> {
        if let Some(folder) = certificate.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let _ = std::fs::remove_file(key);
        File::options().create_new(true).write(true).mode(0o600).open(key)?.write_all(self.key.as_bytes())?;
        Ok(std::fs::write(certificate, &self.certificate)?)
    }
}
