// SPDX-License-Identifier: Apache-2.0
//! Certificates, keys and tokens of a cluster, created per cluster.

use std::fs;
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// Files for the API server and its clients.
#[derive(Debug)]
pub(crate) struct Pki {
    directory: PathBuf,
    ca_pem: String,
    admin_token: String,
    node_tokens: Vec<(String, String)>,
}

impl Pki {
    /// Creates the files in `directory`. The certificate of the API server is valid for `addresses`.
    pub(crate) fn make(directory: &Path, addresses: &[Ipv4Addr], nodes: &[String]) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let ca_key = KeyPair::generate().context("cannot make a key")?;
        let mut ca = CertificateParams::new(Vec::<String>::new()).context("cannot describe the CA")?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::CrlSign,
        ];
        ca.distinguished_name.push(DnType::CommonName, "harness");
        let ca_pem = ca.self_signed(&ca_key).context("cannot sign the CA")?.pem();
        let issuer = Issuer::new(ca, ca_key);

        let mut names = vec!["localhost".to_owned(), "kubernetes.default.svc".to_owned()];
        names.extend(addresses.iter().map(ToString::to_string));
        let mut server = CertificateParams::new(names).context("cannot describe the API server's certificate")?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        let server_key = KeyPair::generate().context("cannot make a key")?;
        let server_pem = server
            .signed_by(&server_key, &issuer)
            .context("cannot sign the API server's certificate")?
            .pem();

        let accounts = KeyPair::generate().context("cannot make a key")?;
        let admin_token = random_token()?;
        let node_tokens = nodes
            .iter()
            .map(|node| Ok((node.clone(), random_token()?)))
            .collect::<Result<Vec<_>>>()?;
        let admin = format!(
            "{admin_token},admin,admin,\"system:masters\"
"
        );
        let nodes = node_tokens.iter().map(|(node, token)| {
            format!(
                "{token},system:node:{node},{node},\"system:nodes\"
"
            )
        });
        let tokens: Vec<_> = std::iter::once(admin).chain(nodes).collect();

        let pki = Self {
            directory: directory.to_owned(),
            ca_pem,
            admin_token,
            node_tokens,
        };
        pki.write("ca.crt", &pki.ca_pem)?;
        pki.write("apiserver.crt", &server_pem)?;
        pki.write("apiserver.key", &server_key.serialize_pem())?;
        pki.write("accounts.key", &accounts.serialize_pem())?;
        pki.write("accounts.pub", &accounts.public_key_pem())?;
        pki.write("tokens.csv", &tokens.concat())?;
        Ok(pki)
    }

    /// Returns the path of one of the files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a kubeconfig for the API server at `server`, for the administrator or for a node's kubelet.
    pub(crate) fn write_kubeconfig(&self, path: &Path, server: &str, node: Option<&str>) -> Result<()> {
        let token = match node {
            None => &self.admin_token,
            Some(node) => {
                let entry = self.node_tokens.iter().find(|(name, _)| name == node);
                &entry.with_context(|| format!("there is no node {node}"))?.1
            }
        };
        self.write_kubeconfig_of(path, server, token)
    }

    /// Writes a kubeconfig that authenticates with this token.
    pub(crate) fn write_kubeconfig_of(&self, path: &Path, server: &str, token: &str) -> Result<()> {
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "harness",
            "clusters": [{"name": "harness", "cluster": {"server": server, "certificate-authority-data": base64(&self.ca_pem)}}],
            "users": [{"name": "harness", "user": {"token": token}}],
            "contexts": [{"name": "harness", "context": {"cluster": "harness", "user": "harness"}}],
        });
        write_private(path, &config.to_string())
    }

    /// Returns the administrator's token.
    pub(crate) fn admin_token(&self) -> &str {
        &self.admin_token
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        write_private(&self.file(name), content)
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn write_private(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot make {} private", path.display()))
}

fn random_token() -> Result<String> {
    use base64::Engine;
    let mut bytes = [0; 24];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("no random numbers")?;
    Ok(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}
