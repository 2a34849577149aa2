//! What this process takes of the machine.

use serde::{Deserialize, Serialize};

/// The process at one moment. Zeros where the system does not tell (it does on Linux).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessReading {
    /// Memory that is resident, in bytes.
    pub resident_bytes: u64,
    /// Processor time of all threads, in seconds.
    pub cpu_s: f64,
    /// Threads.
    pub threads: u64,
    /// Open file descriptors.
    pub open_files: u64,
}

impl ProcessReading {
    /// Reads it now.
    #[must_use]
    pub fn take() -> Self {
        #[cfg(target_os = "linux")]
        {
            let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
            let mut reading = Self::of(&read("status"), &read("stat"));
            reading.open_files = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
            reading
        }
        #[cfg(not(target_os = "linux"))]
        Self::default()
    }

    /// From the texts of `/proc/self/status` and `/proc/self/stat`.
    #[cfg(any(target_os = "linux", test))]
    fn of(status: &str, stat: &str) -> Self {
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        // The name of the program, in parentheses, may hold blanks. After it, utime and stime are the 12th and 13th
        // fields, in hundredths of a second on every Linux that there is.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
        Self {
            resident_bytes: field("VmRSS") * 1024,
            cpu_s: (ticks(11) + ticks(12)) as f64 / 100.0,
            threads: field("Threads"),
            open_files: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_texts_are_read() {
        let status = "Name:\ta b\nVmPeak:\t  9000 kB\nVmRSS:\t    1234 kB\nThreads:\t7\n";
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 7 0 100 200 300";
        let reading = ProcessReading::of(status, stat);
        assert_eq!(reading.resident_bytes, 1234 * 1024);
        assert_eq!((reading.cpu_s, reading.threads), (3.0, 7));
        assert_eq!(ProcessReading::of("", ""), ProcessReading::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_resident() {
        let reading = ProcessReading::take();
        assert!(reading.resident_bytes > 1 << 20 && reading.threads >= 1 && reading.open_files >= 1);
    }
}
