//! Names under which a service of this machine alone is asked.
//!
//! A page in a browser cannot be kept from giving its own name the address 127.0.0.1 and asking what listens there; the name
//! stays in the header `Host`, so that what is for this machine alone answers to this machine's names alone.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, header};

/// Whether a request names this machine, or nothing, as no browser does.
pub(super) fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else {
        return true;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    // The port is whatever leads here, such as that of a tunnel. Colons of an address stand in brackets.
    if let Some(rest) = host.strip_prefix('[') {
        let name = rest.split_once(']').map_or("", |(name, _)| name);
        let address = name.parse::<Ipv6Addr>();
        return address.is_ok_and(|ip| ip.to_canonical().is_loopback());
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let address = name.parse::<Ipv4Addr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_this_machines_own_names_are_taken() {
        let asked = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
            names_this_machine(&headers)
        };
        for host in [
            "localhost",
            "LocalHost:8000",
            "127.0.0.1:1",
            "127.8.8.8",
            "[::1]:80",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(asked(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "example.org:8000",
            "localhost.example.org",
            "10.0.0.1",
            "[::2]:80",
            "[",
            "::1:x",
        ] {
            assert!(!asked(host), "{host}");
        }
        assert!(names_this_machine(&HeaderMap::new()));
    }
}
