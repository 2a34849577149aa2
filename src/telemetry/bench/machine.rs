//! The machine that a benchmark ran on, and what the process took of it.

use std::fs;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What decides how fast a machine is, as far as the system tells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Name of the processor.
    pub processor: Option<String>,
    /// Processors that this process may use.
    pub processors: Option<usize>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Operating system and architecture.
    pub system: String,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// How the frequency of the processors is chosen.
    pub governor: Option<String>,
    /// Runnable tasks, mean of the minute before the benchmark. Well above 0: something else was at work.
    pub load_average: Option<f64>,
}

impl Machine {
    /// This machine, now.
    #[must_use]
    pub fn here() -> Self {
        let text = |path: &str| Some(fs::read_to_string(path).ok()?.trim().to_owned());
        let field = |path: &str, key: &str| {
            let content = fs::read_to_string(path).ok()?;
            let line = content.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = field("/proc/meminfo", "MemTotal").and_then(|value| kib(&value));
        Self {
            processor: field("/proc/cpuinfo", "model name"),
            processors: std::thread::available_parallelism().ok().map(usize::from),
            memory_mib: memory.map(|kib| kib >> 10),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            kernel: text("/proc/sys/kernel/osrelease"),
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load_average: text("/proc/loadavg")
                .and_then(|loads| loads.split_whitespace().next()?.parse().ok()),
        }
    }

    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        let mut parts = vec![self.processor.clone().unwrap_or_else(|| self.system.clone())];
        parts.extend(self.processors.map(|count| format!("{count} processor(s)")));
        parts.extend(
            self.memory_mib
                .map(|mib| format!("{:.1} GiB", mib as f64 / 1024.0)),
        );
        parts.extend(self.kernel.as_ref().map(|kernel| format!("kernel {kernel}")));
        parts.extend(self.load_average.map(|load| format!("load {load:.2} before")));
        parts.join(", ")
    }
}

fn kib(value: &str) -> Option<u64> {
    value.strip_suffix("kB")?.trim().parse().ok()
}

/// What this process took between two moments; absent where the system does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessUse {
    /// Time of processors over time that passed: 1 is one processor fully used.
    pub processors: Option<f64>,
    /// Memory in use at the end, in MiB.
    pub resident_mib: Option<f64>,
    /// Most memory ever in use, in MiB.
    pub peak_resident_mib: Option<f64>,
}

impl ProcessUse {
    /// Begins now; the closure tells what was taken since.
    pub fn begin() -> impl Fn() -> Self {
        let (since, before) = (Instant::now(), processor_time());
        move || {
            let status = |key: &str| {
                let content = fs::read_to_string("/proc/self/status").ok()?;
                let line = content.lines().find(|line| line.starts_with(key))?;
                Some(kib(line.split_once(':')?.1.trim())? as f64 / 1024.0)
            };
            let used = processor_time()
                .zip(before)
                .map(|(now, before)| now.saturating_sub(before));
            Self {
                processors: used.map(|used| used.as_secs_f64() / since.elapsed().as_secs_f64().max(1e-9)),
                resident_mib: status("VmRSS"),
                peak_resident_mib: status("VmHWM"),
            }
        }
    }
}

/// Time of processors that the process has taken, in user and in kernel mode, all threads together.
fn processor_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may hold blanks.
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    // Linux shows these in hundredths of a second whatever its own tick.
    Some(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn work_shows_as_time_of_a_processor() {
        let taken = ProcessUse::begin();
        let since = Instant::now();
        let mut sum = 0_u64;
        // Until the system counts it; a test that shares its processor may take a while.
        while processor_time().unwrap() < Duration::from_millis(50)
            || since.elapsed() < Duration::from_millis(50)
        {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let taken = taken();
        assert!(taken.processors.unwrap() > 0.0, "{taken:?}");
        assert!(
            taken.resident_mib.unwrap() <= taken.peak_resident_mib.unwrap() + 1.0,
            "{taken:?}"
        );
        assert!(Machine::here().memory_mib.unwrap() > 0);
    }
}
