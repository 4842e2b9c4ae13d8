//! The HTTP client of callbacks: where it may connect to, by which proxies, and whom it trusts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eno_http_client::{BoxError, Client, Settings, certificates};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use rustls::ClientConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::CallbackArgs;
use super::address::Policy;
use super::args::proxy_url;
use super::post::PosterError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// `policy` checks the addresses of host names.
pub fn client(args: &CallbackArgs, policy: Arc<Policy>) -> Result<Client, PosterError> {
    let (proxies, proxy_hosts) = proxies(args)?;
    let check = move |name: &str, addresses: &[SocketAddr]| {
        // The administrator chose the proxies, and they resolve other names themselves.
        if policy.host_is_allowed(name) || proxy_hosts.contains(&name.to_lowercase()) {
            return Ok(());
        }
        // A refused address among others may be placed there by an attacker.
        Ok(addresses.iter().try_for_each(|address| policy.address(address.ip()))?)
    };
    Ok(Client::new(Settings {
        tls: tls(args)?,
        http2: true,
        proxies,
        check: Arc::new(check),
        connect_timeout: CONNECT_TIMEOUT,
    }))
}

/// The proxies, and their host names.
fn proxies(args: &CallbackArgs) -> Result<(Matcher, Vec<String>), PosterError> {
    let variable = |upper: &str| {
        let found = std::env::var(upper).or_else(|_| std::env::var(upper.to_lowercase()));
        found.ok().filter(|text| !text.is_empty())
    };
    let mut builder = Matcher::builder().no(variable("NO_PROXY").unwrap_or_default());
    let mut hosts = Vec::new();
    for (scheme, url) in proxy_urls(args.callback_proxy.as_ref().map(Url::as_str), variable) {
        let url = proxy_url(&url).map_err(PosterError::Proxy)?;
        hosts.extend(url.host_str().map(str::to_lowercase));
        let url = String::from(url);
        builder = match scheme {
            Proxied::All => builder.all(url),
            Proxied::Https => builder.https(url),
            Proxied::Http => builder.http(url),
        };
    }
    Ok((builder.build(), hosts))
}

/// The URLs that a proxy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proxied {
    All,
    Https,
    Http,
}

/// The URLs of the proxies.
fn proxy_urls(flag: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Vec<(Proxied, String)> {
    if let Some(url) = flag {
        return vec![(Proxied::All, url.to_owned())];
    }
    let https = variable("HTTPS_PROXY").map(|url| (Proxied::Https, url));
    https.into_iter().chain(variable("HTTP_PROXY").map(|url| (Proxied::Http, url))).collect()
}

fn tls(args: &CallbackArgs) -> Result<ClientConfig, PosterError> {
    let read = |file: &PathBuf| {
        std::fs::read(file).map_err(|source| PosterError::File { file: file.clone(), source })
    };
    let client = |what| move |source: BoxError| PosterError::Client { what, source };
    let authorities = match &args.callback_ca {
        Some(file) => certificates(&read(file)?).map_err(client("--callback-ca"))?,
        None => Vec::new(),
    };
    let config = eno_http_client::tls(authorities).map_err(|error| client("--callback-ca")(error.into()))?;
    let Some(file) = &args.callback_client_certificate else { return Ok(config.with_no_client_auth()) };
    let text = read(file)?;
    let identity = || {
        let (chain, key) = (certificates(&text)?, PrivateKeyDer::from_pem_slice(&text)?);
        Ok(config.with_client_auth_cert(chain, key)?)
    };
    identity().map_err(client("--callback-client-certificate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_flag_overrides_environment() {
        let environment = |name: &str| match name {
            "HTTPS_PROXY" => Some("http://upper:1".to_owned()),
            "HTTP_PROXY" => Some("http://lower:2".to_owned()),
            _ => None,
        };
        assert_eq!(
            proxy_urls(Some("http://flag:3"), environment),
            [(Proxied::All, "http://flag:3".to_owned())]
        );
        let expected =
            [(Proxied::Https, "http://upper:1".to_owned()), (Proxied::Http, "http://lower:2".to_owned())];
        assert_eq!(proxy_urls(None, environment), expected);
    }
}
