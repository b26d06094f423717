//! Certificates and kubeconfigs of one cluster. Every boot makes a new authority, so none is kept.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::json;

/// A certificate authority that writes its certificates into a folder.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes the authority; its certificate is `ca.crt` in `folder`.
    ///
    /// # Errors
    ///
    /// When the files cannot be written.
    pub fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let mut params = named("swarm-e2e", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        fs::write(folder.join("ca.crt"), params.self_signed(&key)?.pem())?;
        Ok(Self { folder: folder.to_owned(), issuer: Issuer::new(params, key) })
    }

    /// The path of a file of this authority, such as `apiserver.key`.
    #[must_use]
    pub fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    /// Writes `{file}.crt` and `{file}.key` for a server known by `names` (addresses or DNS names).
    ///
    /// # Errors
    ///
    /// When a name is malformed or the files cannot be written.
    pub fn server(&self, file: &str, names: &[&str]) -> Result<()> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(file, &params)
    }

    /// Writes `{file}.crt` and `{file}.key` for a client, and returns the path of a kubeconfig that
    /// uses them against `server`.
    ///
    /// # Errors
    ///
    /// When the files cannot be written.
    pub fn client(&self, file: &str, who: &Identity<'_>, server: &str) -> Result<PathBuf> {
        let mut params = named(who.user, who.group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(file, &params)?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": {
                "server": server, "certificate-authority": self.path("ca.crt"),
            }}],
            "users": [{"name": file, "user": {
                "client-certificate": self.path(&format!("{file}.crt")),
                "client-key": self.path(&format!("{file}.key")),
            }}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": file}}],
            "current-context": "e2e",
        });
        let path = self.folder.join(format!("{file}.kubeconfig"));
        fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Writes `{file}.key` and `{file}.pub`, a pair for signing tokens.
    ///
    /// # Errors
    ///
    /// When the files cannot be written.
    pub fn signing_pair(&self, file: &str) -> Result<()> {
        let key = KeyPair::generate()?;
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem())?;
        Ok(fs::write(self.path(&format!("{file}.pub")), key.public_key_pem())?)
    }

    fn sign(&self, file: &str, params: &CertificateParams) -> Result<()> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        fs::write(self.path(&format!("{file}.crt")), certificate.pem())?;
        Ok(fs::write(self.path(&format!("{file}.key")), key.serialize_pem())?)
    }
}

/// The user of a client certificate.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// Kubernetes user name.
    pub user: &'a str,
    /// Kubernetes group, if any.
    pub group: Option<&'a str>,
}

fn named(user: &str, group: Option<&str>) -> CertificateParams {
    let mut name = DistinguishedName::new();
    if let Some(group) = group {
        name.push(DnType::OrganizationName, group);
    }
    name.push(DnType::CommonName, user);
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_kubeconfig_points_at_files_that_exist() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path()).unwrap();
        let admin = Identity { user: "admin", group: Some("system:masters") };
        let path = authority.client("admin", &admin, "https://127.0.0.1").unwrap();
        let config: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let exists = |value: &Value| Path::new(value.as_str().unwrap()).exists();
        assert!(exists(&config["clusters"][0]["cluster"]["certificate-authority"]));
        assert!(exists(&config["users"][0]["user"]["client-certificate"]));
        assert!(exists(&config["users"][0]["user"]["client-key"]));
    }
}
