//! Memory of a process, as Linux tells it.
#![cfg(target_os = "linux")]
#![allow(unreachable_pub, reason = "test targets include this file")]

/// Resident memory of a process in MB; `None` once it is over.
pub fn resident_mb(process: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}
