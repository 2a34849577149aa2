//! Runs of the program that are watched over HTTP.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test target includes this file and uses its own part"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::tiny::{Lab, Outcome, await_end};

/// Longest wait for something that has to happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run that is watched. It is killed if a test fails meanwhile.
pub struct Watched {
    child: Option<Child>,
    address: SocketAddr,
}

/// Answer to a request: code and body. `headers` end their lines.
pub fn get(address: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String) {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{answer}"));
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    if head.to_lowercase().contains("transfer-encoding: chunked") {
        return (code, unchunked(body));
    }
    (code, body.to_owned())
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return body;
        }
        body += &after[..size];
        rest = &after[size + 2..];
    }
}

impl Watched {
    /// Starts a run that listens on a port that is free, and waits until it does.
    pub fn start(lab: &Lab, arguments: &[&str]) -> Self {
        let mut arguments = arguments.to_vec();
        arguments.extend(["--listen", "127.0.0.1:0"]);
        let mut child = lab.start(&arguments);
        // Byte by byte, so that what follows is still there for whoever reads the rest.
        let told = child.stderr.as_mut().unwrap();
        let mut line = String::new();
        let address = loop {
            line.clear();
            let read = BufReader::with_capacity(1, &mut *told)
                .read_line(&mut line)
                .unwrap();
            assert_ne!(read, 0, "the run ended before it listened");
            if let Some((_, address)) = line.trim().split_once("http://") {
                break address.parse().unwrap();
            }
        };
        Self {
            child: Some(child),
            address,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A page that is there.
    pub fn page(&self, path: &str) -> String {
        let (code, body) = get(self.address, "GET", path, "");
        assert_eq!(code, 200, "{path}: {body}");
        body
    }

    /// The status.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.page("/status")).unwrap()
    }

    /// Waits until the status is so.
    pub fn until(&self, is_so: impl Fn(&Value) -> bool) {
        let since = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "it never was so: {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Interrupts the run.
    pub fn end(self) -> Outcome {
        let id = self.child.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
        assert!(sent.success());
        self.ended()
    }

    /// Waits for the run to end by itself.
    pub fn ended(mut self) -> Outcome {
        await_end(self.child.take().unwrap())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
