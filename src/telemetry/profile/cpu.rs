//! What the processor does while something is measured: its frequency and temperature, where the system shows them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

/// Names of hardware monitors that measure a processor.
const CPU_MONITORS: [&str; 5] = ["coretemp", "k10temp", "zenpower", "cpu_thermal", "fam15h_power"];

/// The files of a system that tell of its processor. They are looked for once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuSensors {
    /// Current frequency of each core, in kHz.
    frequencies: Vec<PathBuf>,
    /// Temperatures of the processor, in thousandths of a degree Celsius.
    temperatures: Vec<PathBuf>,
}

impl CpuSensors {
    /// Looks below a folder that is laid out as Linux' `/sys`.
    #[must_use]
    pub fn find(root: &Path) -> Self {
        let cores = children(&root.join("devices/system/cpu"), "cpu");
        let frequencies = cores.iter().map(|core| core.join("cpufreq/scaling_cur_freq"));
        let monitors = children(&root.join("class/hwmon"), "hwmon").into_iter();
        let monitors = monitors.filter(|monitor| {
            text(&monitor.join("name")).is_some_and(|name| CPU_MONITORS.contains(&name.as_str()))
        });
        let mut temperatures: Vec<PathBuf> = monitors
            .flat_map(|monitor| children(&monitor, "temp"))
            .filter(|file| file.to_string_lossy().ends_with("_input"))
            .collect();
        if temperatures.is_empty() {
            let zones = children(&root.join("class/thermal"), "thermal_zone").into_iter();
            let of_cpu = zones.filter(|zone| {
                text(&zone.join("type")).is_some_and(|kind| {
                    let kind = kind.to_ascii_lowercase();
                    kind.contains("cpu") || kind.contains("pkg")
                })
            });
            temperatures.extend(of_cpu.map(|zone| zone.join("temp")));
        }
        Self {
            frequencies: frequencies.filter(|file| file.exists()).collect(),
            temperatures: temperatures.into_iter().filter(|file| file.exists()).collect(),
        }
    }

    /// Whether the system shows anything.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.frequencies.is_empty() && self.temperatures.is_empty()
    }

    /// Mean frequency of the cores in MHz, and the highest temperature in degrees Celsius, now.
    #[must_use]
    pub fn sample(&self) -> [Option<f64>; 2] {
        let numbers = |files: &[PathBuf]| -> Vec<f64> {
            let readable = files.iter().filter_map(|file| text(file)?.parse::<f64>().ok());
            readable.filter(|value| value.is_finite()).collect()
        };
        let frequencies = numbers(&self.frequencies);
        let mean = frequencies.iter().sum::<f64>() / frequencies.len() as f64;
        let hottest = numbers(&self.temperatures).into_iter().reduce(f64::max);
        [
            (!frequencies.is_empty()).then_some(mean / 1e3),
            hottest.map(|temperature| temperature / 1e3),
        ]
    }
}

/// Entries of a folder whose names begin with a word and go on with a number, sorted.
fn children(folder: &Path, word: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbered = entries.filter(|entry| {
        let name = entry.file_name();
        let rest = name.to_string_lossy().strip_prefix(word).map(str::to_owned);
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    let mut paths: Vec<PathBuf> = numbered.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn text(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

/// The smallest, mean and largest of some values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        let (min, max) = (
            values.iter().copied().reduce(f64::min)?,
            values.iter().copied().reduce(f64::max)?,
        );
        Some(Self {
            min,
            mean: values.iter().sum::<f64>() / values.len() as f64,
            max,
        })
    }
}

/// What was seen of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct CpuSummary {
    /// How often it was looked at.
    pub samples: usize,
    /// Mean frequency of the cores, in MHz; absent where the system does not show it.
    pub frequency_mhz: Option<Spread>,
    /// Highest temperature, in degrees Celsius; absent where the system does not show it.
    pub temperature_c: Option<Spread>,
}

/// Looks at the processor from a thread of its own until it is stopped.
#[derive(Debug)]
pub struct CpuSampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Vec<[Option<f64>; 2]>>>,
}

impl CpuSampler {
    /// Looks at once, then every `interval`. Where the sensors are none, no thread is started.
    ///
    /// # Errors
    /// The system has no further thread.
    pub fn start(sensors: CpuSensors, interval: Duration) -> std::io::Result<Self> {
        if sensors.is_empty() {
            return Ok(Self {
                stop: None,
                thread: None,
            });
        }
        let (stop, stopped) = channel::<()>();
        let look = move || {
            let mut samples = vec![sensors.sample()];
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                samples.push(sensors.sample());
            }
            samples
        };
        let thread = std::thread::Builder::new()
            .name("sensorium-cpu".into())
            .spawn(look)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Stops, and tells what was seen.
    #[must_use]
    pub fn stop(mut self) -> CpuSummary {
        let samples = self.end();
        let values = |which: usize| {
            let seen = samples.iter().filter_map(|sample| sample[which]);
            Spread::of(&seen.collect::<Vec<_>>())
        };
        CpuSummary {
            samples: samples.len(),
            frequency_mhz: values(0),
            temperature_c: values(1),
        }
    }

    fn end(&mut self) -> Vec<[Option<f64>; 2]> {
        // The thread ends once nobody can send to it any more.
        self.stop = None;
        let seen = self.thread.take().map(JoinHandle::join);
        seen.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for CpuSampler {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn frequency_and_temperature_are_read_where_they_are_shown() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(
            root,
            "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq",
            "1000000\n",
        );
        write(
            root,
            "devices/system/cpu/cpu1/cpufreq/scaling_cur_freq",
            "3000000\n",
        );
        // A core that shows nothing, a folder that is no core, and a file that is no number.
        write(root, "devices/system/cpu/cpu2/online", "1");
        write(root, "devices/system/cpu/cpufreq/scaling_cur_freq", "9");
        write(
            root,
            "devices/system/cpu/cpu3/cpufreq/scaling_cur_freq",
            "<unknown>",
        );
        write(root, "class/hwmon/hwmon0/name", "nvme\n");
        write(root, "class/hwmon/hwmon0/temp1_input", "99000");
        write(root, "class/hwmon/hwmon1/name", "coretemp\n");
        write(root, "class/hwmon/hwmon1/temp1_input", "51000\n");
        write(root, "class/hwmon/hwmon1/temp2_input", "54500\n");
        write(root, "class/hwmon/hwmon1/temp2_crit", "100000\n");
        write(root, "class/thermal/thermal_zone0/type", "x86_pkg_temp");
        write(root, "class/thermal/thermal_zone0/temp", "80000");
        let sensors = CpuSensors::find(root);
        assert_eq!(sensors.sample(), [Some(2000.0), Some(54.5)]);

        let sampler = CpuSampler::start(sensors, Duration::from_millis(1)).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        write(
            root,
            "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq",
            "2000000\n",
        );
        std::thread::sleep(Duration::from_millis(30));
        let summary = sampler.stop();
        assert!(summary.samples >= 3, "{summary:?}");
        let frequency = summary.frequency_mhz.unwrap();
        assert_eq!((frequency.min, frequency.max), (2000.0, 2500.0));
        assert!(frequency.mean > 2000.0 && frequency.mean < 2500.0);
        let temperature = summary.temperature_c.unwrap();
        assert_eq!(
            (temperature.min, temperature.mean, temperature.max),
            (54.5, 54.5, 54.5)
        );
    }

    #[test]
    fn thermal_zones_stand_in_for_a_monitor_and_nothing_is_nothing() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert!(CpuSensors::find(root).is_empty());
        write(root, "class/thermal/thermal_zone0/type", "battery");
        write(root, "class/thermal/thermal_zone0/temp", "30000");
        let sensors = CpuSensors::find(root);
        assert!(sensors.is_empty());
        let sampler = CpuSampler::start(sensors, Duration::from_secs(3600)).unwrap();
        assert_eq!(sampler.stop(), CpuSummary::default());
        write(root, "class/thermal/thermal_zone1/type", "CPU-therm");
        write(root, "class/thermal/thermal_zone1/temp", "-2500");
        let sensors = CpuSensors::find(root);
        assert_eq!(sensors.sample(), [None, Some(-2.5)]);
        // Stopping does not wait for the interval; what is dropped stops, too.
        let sampler = CpuSampler::start(sensors.clone(), Duration::from_secs(3600)).unwrap();
        assert_eq!(sampler.stop().samples, 1);
        drop(CpuSampler::start(sensors, Duration::from_secs(3600)).unwrap());
    }
}
