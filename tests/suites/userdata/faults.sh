# Faults that people met, each as a file: what lint says (its codes in order, the exit code), and the schema beside it.
#   sourced by userdata.sh
fault() {                                                           # name, expected exit code, expected codes; text on stdin
    local name=$1 code=$2 codes=$3 said=0 found
    cat >"$work/fault.yaml"
    found=$("$outrider" userdata lint "$work/fault.yaml" -o json) || said=$?
    found=$(jq -r '[.findings[].code] | join(" ")' <<<"$found")
    [ "$said $found" = "$code $codes" ] || fail "$name: expected \"$code $codes\", found \"$said $found\""
    ok "$name: ${codes:-nothing}"
    row "$name" "a file" "${codes:-nothing}" "$(schema "$work/fault.yaml")"
}
body='packages: [a]'
fault "no header" 1 HeaderMissing <<<"$body"
fault "a byte-order mark" 1 ByteOrderMark < <(printf '\xef\xbb\xbf#cloud-config\n%s\n' "$body")
fault "two blank lines before the header" 0 TextBeforeHeader < <(printf '\n\n#cloud-config\n%s\n' "$body")
fault "a blank in the header" 1 HeaderMisspelt <<<$'# cloud-config\n'"$body"
fault "a header in capitals" 0 HeaderCase <<<$'#Cloud-Config\n'"$body"
fault "a script with CRLF" 0 CarriageReturns < <(printf '#!/bin/bash\r\necho a\r\n')
fault "CRLF in a cloud-config" 0 "" < <(printf '#cloud-config\r\n%s\r\n' "$body")
fault "base64 in a plain field" 1 Base64InPlainField <<<I2Nsb3VkLWNvbmZpZwpwYWNrYWdlczogW2FdCg==
fault "everything under user-data" 1 UnknownTopLevelKey <<<$'#cloud-config\nuser-data:\n  packages: [a]'
fault "UTF-16" 1 NotUtf8 < <(printf '#cloud-config\n' | iconv -t UTF-16)
fault "an empty file" 1 Empty </dev/null
fault "a colon and an empty entry in runcmd" 1 "EntryIsMapping EmptyEntry" <<'Y'
#cloud-config
runcmd:
  - echo "ok"
  - echo Done: installed
  -
  - [echo, hi]
  - 'echo Done: quoted'
Y
fault "two colons in one entry" 1 NotYaml <<'Y'
#cloud-config
runcmd:
  - sed -i 's/^Components: main$/Components: main contrib/' /etc/x
Y
fault "an argument of YAML 1.1" 1 ArgumentMisread <<<$'#cloud-config\nruncmd:\n  - [chmod, 0644, /etc/x]'
fault "a name that is false" 1 Misread <<<$'#cloud-config\nhostname: no'
fault "the same key twice" 1 DuplicateKey <<<$'#cloud-config\npackages: [a]\nruncmd: [b]\npackages: [c]'
fault "a tab" 1 TabOutsideText <<<$'#cloud-config\nhostname:\tweb'
fault "a NUL byte" 1 NulByte < <(printf '#cloud-config\nhostname: a\0\n')
fault "network settings in user-data" 1 NetworkInUserData <<<$'#cloud-config\nnetwork: {version: 2}'
fault "a key that belongs to the top level" 1 MisplacedKey <<<$'#cloud-config\nntp:\n  enabled: true\n  runcmd: [a]'
fault "a slip of a key" 1 UnknownTopLevelKey <<<$'#cloud-config\nwrite-files: []'
fault "a unit after cloud-final, started and waited for" 1 WaitsForItself <<'Y'
#cloud-config
write_files:
  - path: /etc/systemd/system/a.service
    content: |
      [Unit]
      After=cloud-final.service
      [Service]
      ExecStart=/bin/true
runcmd:
  - systemctl start a
Y
fault "a unit after the target that wants it" 1 UnitDeadlock <<'Y'
#cloud-config
write_files:
  - path: /etc/systemd/system/a.service
    content: |
      [Unit]
      After=multi-user.target
      [Service]
      ExecStart=/bin/true
      [Install]
      WantedBy=multi-user.target
Y
fault "a private key that everybody reads" 0 "SecretReadable SecretInUserdata" <<'Y'
#cloud-config
write_files:
  - path: /etc/key.pem
    content: |
      -----BEGIN RSA PRIVATE KEY-----
Y
fault "lists in two parts" 1 PartOverridden <<'M'
Content-Type: multipart/mixed; boundary="b"
MIME-Version: 1.0

--b
Content-Type: text/cloud-config

#cloud-config
packages: [a]

--b
Content-Type: text/cloud-config

#cloud-config
packages: [b]

--b--
M
if command -v cloud-init >/dev/null; then
    said=$("$outrider" userdata lint --verify -o json - <<<$'#cloud-config\nhostname: web' | jq -r .schema.verdict)
    is "--verify asks cloud-init schema" valid "$said"
    said=$("$outrider" userdata lint --verify -o json - <<<$'#cloud-config\nhostname: no' | jq -r .schema.verdict || true)
    is "and tells what it objects to" invalid "$said"
fi
