//! How a device is opened: values in layers, each from another place.
//!
//! A [`DeviceConfig`] is complete. It is made of [`DeviceLayer`]s, which say only what their place says:
//! defaults, then the pipeline file, then the environment, then the command line; of two that say something
//! the later one wins. Nothing here reads the process environment: whoever owns the process hands it in.

use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;

use super::backends::{BackendKind, Backends, expected};
use super::cpu::CpuConfig;
use super::cpu::kernels::Bf16Dot;
use super::sim::SimConfig;

/// What the names of the environment variables begin with.
pub const ENVIRONMENT_PREFIX: &str = "SENSORIUM_DEVICE_";

/// Numbers of command queues.
pub const QUEUES: RangeInclusive<u8> = 1..=2;
/// Numbers of threads, where they are not `auto`.
pub const THREADS: RangeInclusive<u16> = 1..=256;
/// Sizes of device memory in MiB.
pub const ARENA_MIB: RangeInclusive<u32> = 16..=1_048_576;
/// Sizes of the trace region in MiB.
pub const TRACE_REGION_MIB: RangeInclusive<u32> = 1..=1_048_576;
/// Times that an idle queue spins in microseconds.
pub const SPIN_US: RangeInclusive<u32> = 0..=1_000_000;

/// The settings, as a pipeline file spells them; a variable is the prefix and the key in capitals.
const KEYS: [&str; 8] = [
    "backend",
    "threads",
    "queues",
    "arena_mib",
    "trace_region_mib",
    "spin_us",
    "allow_fallback",
    "bf16_dot",
];

/// A value that no device can be configured with, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value of the wrong kind or out of range.
    #[error("{name} cannot be `{value}`: expected {expected}")]
    Value {
        /// The environment variable.
        name: String,
        /// What it holds.
        value: String,
        /// What it may hold.
        expected: String,
    },
    /// A variable with the prefix of device variables that is none of them.
    #[error("{name} is no setting of the device: {}", advice(.nearest.as_deref()))]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The one that was most likely meant.
        nearest: Option<String>,
    },
}

fn advice(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || format!("there are {}", KEYS.map(variable).join(", ")),
        |nearest| format!("did you mean {nearest}?"),
    )
}

/// A number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Threads {
    /// One per processor.
    Auto,
    /// So many, at least 1.
    Count(u16),
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

/// Which sums convolutions of bf16 have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bf16Sums {
    /// Those of the fastest instruction of the processor, see [`Bf16Dot`]. Another processor may give other bits.
    #[default]
    Auto,
    /// Those of fp32, the same on every processor.
    Off,
}

impl fmt::Display for Bf16Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Off => "off",
        })
    }
}

/// What one place says about the device; what it leaves out is decided elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DeviceLayer {
    /// Which backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendKind>,
    /// Threads that compute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Threads>,
    /// Command queues, within [`QUEUES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u8>,
    /// Device memory in MiB, within [`ARENA_MIB`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_mib: Option<u32>,
    /// Memory that all traces together may take in MiB, within [`TRACE_REGION_MIB`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_region_mib: Option<u32>,
    /// How long an idle queue spins before it sleeps in microseconds, within [`SPIN_US`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_us: Option<u32>,
    /// Whether the CPU device may take the place of a backend that cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_fallback: Option<bool>,
    /// Which sums convolutions of bf16 have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bf16_dot: Option<Bf16Sums>,
}

impl DeviceLayer {
    /// What the environment says: the variables that begin with [`ENVIRONMENT_PREFIX`]. The others are not
    /// looked at.
    ///
    /// # Errors
    /// [`ConfigError`] for a value that is not allowed, and for a name that begins so and is none of the
    /// variables: a misspelt one would be ignored in silence.
    pub fn from_environment(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        backends: &Backends,
    ) -> Result<Self, ConfigError> {
        let mut layer = Self::default();
        for (name, value) in variables {
            // Names and values that are no text: no variable is called so, and no setting takes it.
            let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
            let Some(rest) = name.strip_prefix(ENVIRONMENT_PREFIX) else {
                continue;
            };
            let Some(key) = KEYS.iter().find(|key| key.to_uppercase() == rest) else {
                return Err(ConfigError::UnknownVariable {
                    nearest: nearest(rest, KEYS).map(variable),
                    name: name.into_owned(),
                });
            };
            layer
                .set(key, &value, backends)
                .map_err(|expected| ConfigError::Value {
                    name: name.into_owned(),
                    value: value.into_owned(),
                    expected,
                })?;
        }
        Ok(layer)
    }

    /// Sets what `key` names, a key as in a pipeline file, from text.
    ///
    /// # Errors
    /// What was expected: a noun phrase.
    pub fn set(&mut self, key: &str, text: &str, backends: &Backends) -> Result<(), String> {
        match key {
            "backend" => {
                self.backend = Some(
                    backends
                        .named(text)
                        .map_err(|error| expected(text, &error.known))?,
                );
            }
            "threads" if text == "auto" => self.threads = Some(Threads::Auto),
            "threads" => {
                let count = number(text, &THREADS).map_err(|number| format!("`auto`, or {number}"))?;
                self.threads = Some(Threads::Count(count));
            }
            "queues" => self.queues = Some(number(text, &QUEUES)?),
            "arena_mib" => self.arena_mib = Some(number(text, &ARENA_MIB)?),
            "trace_region_mib" => self.trace_region_mib = Some(number(text, &TRACE_REGION_MIB)?),
            "spin_us" => self.spin_us = Some(number(text, &SPIN_US)?),
            "allow_fallback" => {
                let value = match text {
                    "true" | "1" => true,
                    "false" | "0" => false,
                    _ => return Err("`true` or `false`".to_owned()),
                };
                self.allow_fallback = Some(value);
            }
            "bf16_dot" => {
                let value = match text {
                    "auto" => Bf16Sums::Auto,
                    "off" => Bf16Sums::Off,
                    _ => return Err("`auto` or `off`".to_owned()),
                };
                self.bf16_dot = Some(value);
            }
            _ => return Err(format!("a setting, one of {}", KEYS.join(", "))),
        }
        Ok(())
    }

    /// The settings that `keep` wants, by key.
    #[must_use]
    pub fn only(self, keep: impl Fn(&str) -> bool) -> Self {
        Self {
            backend: self.backend.filter(|_| keep("backend")),
            threads: self.threads.filter(|_| keep("threads")),
            queues: self.queues.filter(|_| keep("queues")),
            arena_mib: self.arena_mib.filter(|_| keep("arena_mib")),
            trace_region_mib: self.trace_region_mib.filter(|_| keep("trace_region_mib")),
            spin_us: self.spin_us.filter(|_| keep("spin_us")),
            allow_fallback: self.allow_fallback.filter(|_| keep("allow_fallback")),
            bf16_dot: self.bf16_dot.filter(|_| keep("bf16_dot")),
        }
    }

    /// Keys of the settings that this layer says something about.
    #[must_use]
    pub fn keys(&self) -> Vec<&'static str> {
        let set = [
            self.backend.is_some(),
            self.threads.is_some(),
            self.queues.is_some(),
            self.arena_mib.is_some(),
            self.trace_region_mib.is_some(),
            self.spin_us.is_some(),
            self.allow_fallback.is_some(),
            self.bf16_dot.is_some(),
        ];
        KEYS.into_iter()
            .zip(set)
            .filter(|&(_, set)| set)
            .map(|(key, _)| key)
            .collect()
    }
}

/// How a device is opened. Every value has been decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeviceConfig {
    /// Which backend.
    pub backend: BackendKind,
    /// Threads that compute. Results do not depend on it.
    pub threads: Threads,
    /// Command queues.
    pub queues: u8,
    /// Bytes of device memory.
    pub arena_bytes: usize,
    /// Bytes that all traces together may take.
    pub trace_region_bytes: usize,
    /// How long an idle queue, or a host that waits, spins before it sleeps.
    #[serde(rename = "spin_us", serialize_with = "microseconds")]
    pub spin: Duration,
    /// Whether the CPU device may take the place of a backend that cannot be opened. Off by default: a vehicle
    /// that lost its accelerator should say so, not become ten times slower.
    pub allow_fallback: bool,
    /// Which sums convolutions of bf16 have.
    pub bf16_dot: Bf16Sums,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        let cpu = CpuConfig::default();
        Self {
            backend: BackendKind::CPU,
            threads: Threads::Auto,
            queues: cpu.queues,
            arena_bytes: mib(256),
            trace_region_bytes: cpu.trace_region_bytes,
            spin: cpu.spin,
            allow_fallback: false,
            bf16_dot: Bf16Sums::Auto,
        }
    }
}

impl DeviceConfig {
    /// The defaults, changed by each layer in turn.
    #[must_use]
    pub fn from_layers<'a>(layers: impl IntoIterator<Item = &'a DeviceLayer>) -> Self {
        layers
            .into_iter()
            .fold(Self::default(), |config, layer| config.with(layer))
    }

    /// The configuration, changed by what `layer` says.
    #[must_use]
    pub fn with(self, layer: &DeviceLayer) -> Self {
        Self {
            backend: layer.backend.unwrap_or(self.backend),
            threads: layer.threads.unwrap_or(self.threads),
            queues: layer.queues.unwrap_or(self.queues),
            arena_bytes: layer.arena_mib.map_or(self.arena_bytes, mib),
            trace_region_bytes: layer.trace_region_mib.map_or(self.trace_region_bytes, mib),
            spin: layer
                .spin_us
                .map_or(self.spin, |us| Duration::from_micros(us.into())),
            allow_fallback: layer.allow_fallback.unwrap_or(self.allow_fallback),
            bf16_dot: layer.bf16_dot.unwrap_or(self.bf16_dot),
        }
    }
}

impl fmt::Display for DeviceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, threads {}, queues {}, arena {} MiB, trace region {} MiB{}{}",
            self.backend,
            self.threads,
            self.queues,
            self.arena_bytes >> 20,
            self.trace_region_bytes >> 20,
            match self.bf16_dot {
                Bf16Sums::Auto => "",
                Bf16Sums::Off => ", bf16 widened to fp32",
            },
            if self.allow_fallback {
                ", the CPU device in its place if it cannot be opened"
            } else {
                ""
            }
        )
    }
}

impl From<&DeviceConfig> for CpuConfig {
    fn from(config: &DeviceConfig) -> Self {
        Self {
            threads: match config.threads {
                Threads::Auto => 0,
                Threads::Count(count) => count.into(),
            },
            queues: config.queues,
            arena_bytes: config.arena_bytes,
            trace_region_bytes: config.trace_region_bytes,
            spin: config.spin,
            bf16_dot: match config.bf16_dot {
                Bf16Sums::Auto => None,
                Bf16Sums::Off => Some(Bf16Dot::Off),
            },
            ..Self::default()
        }
    }
}

impl From<&DeviceConfig> for SimConfig {
    /// What one thread in virtual time has a use for.
    fn from(config: &DeviceConfig) -> Self {
        Self {
            queues: config.queues,
            arena_bytes: config.arena_bytes,
            trace_region_bytes: config.trace_region_bytes,
            ..Self::default()
        }
    }
}

/// Bytes of so many MiB; more than an address can reach is told when the memory is asked for.
fn mib(mib: u32) -> usize {
    usize::try_from(u64::from(mib) << 20).unwrap_or(usize::MAX)
}

fn microseconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(time.as_micros())
}

/// The environment variable of a key.
fn variable(key: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", key.to_uppercase())
}

/// A whole number within a range, or what was expected.
fn number<T>(text: &str, range: &RangeInclusive<T>) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + fmt::Display,
{
    text.parse()
        .ok()
        .filter(|value| range.contains(value))
        .ok_or_else(|| format!("a whole number from {} to {}", range.start(), range.end()))
}

/// The candidate that `word` was most likely meant to be, if any comes near: about one letter in three may be
/// wrong.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Comparing takes time in proportion to both lengths, and no setting or backend is called so.
    if word.len() > 64 {
        return None;
    }
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&word, candidate), candidate))
        .filter(|&(distance, _)| distance <= word.chars().count().div_ceil(3))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Result<DeviceLayer, ConfigError> {
        let pairs = variables.iter().map(|&(name, value)| (name.into(), value.into()));
        DeviceLayer::from_environment(pairs, &Backends::builtin())
    }

    #[test]
    fn every_setting_has_a_variable_and_other_variables_are_nobody_s_business() {
        let layer = environment(&[
            ("PATH", "/bin"),
            ("SENSORIUM_LOG", "debug"),
            ("SENSORIUM_DEVICE_BACKEND", "cpu"),
            ("SENSORIUM_DEVICE_THREADS", "3"),
            ("SENSORIUM_DEVICE_QUEUES", "1"),
            ("SENSORIUM_DEVICE_ARENA_MIB", "32"),
            ("SENSORIUM_DEVICE_TRACE_REGION_MIB", "2"),
            ("SENSORIUM_DEVICE_SPIN_US", "0"),
            ("SENSORIUM_DEVICE_ALLOW_FALLBACK", "true"),
            ("SENSORIUM_DEVICE_BF16_DOT", "off"),
        ])
        .unwrap();
        assert_eq!(layer.keys(), KEYS);
        assert_eq!(
            DeviceConfig::default().with(&layer),
            DeviceConfig {
                backend: BackendKind::CPU,
                threads: Threads::Count(3),
                queues: 1,
                arena_bytes: 32 << 20,
                trace_region_bytes: 2 << 20,
                spin: Duration::ZERO,
                allow_fallback: true,
                bf16_dot: Bf16Sums::Off,
            }
        );
        assert_eq!(environment(&[]).unwrap(), DeviceLayer::default());
    }

    #[test]
    fn a_later_layer_wins_and_a_silent_one_changes_nothing() {
        let file = DeviceLayer {
            threads: Some(Threads::Count(4)),
            queues: Some(1),
            arena_mib: Some(64),
            ..DeviceLayer::default()
        };
        let environment = environment(&[
            ("SENSORIUM_DEVICE_THREADS", "auto"),
            ("SENSORIUM_DEVICE_ARENA_MIB", "128"),
        ])
        .unwrap();
        let command_line = DeviceLayer {
            arena_mib: Some(16),
            ..DeviceLayer::default()
        };
        let config = DeviceConfig::from_layers([&file, &environment, &command_line]);
        assert_eq!(
            (config.threads, config.queues, config.arena_bytes),
            (Threads::Auto, 1, 16 << 20)
        );
        assert_eq!(
            DeviceConfig::from_layers([]).with(&DeviceLayer::default()),
            DeviceConfig::default()
        );
        let without_threads = file.only(|key| key != "threads");
        assert_eq!(without_threads.keys(), ["queues", "arena_mib"]);
    }

    #[test]
    fn a_wrong_value_is_told_with_its_variable_and_what_it_takes() {
        let told = |name: &str, value: &str| environment(&[(name, value)]).unwrap_err().to_string();
        assert_eq!(
            told("SENSORIUM_DEVICE_QUEUES", "3"),
            "SENSORIUM_DEVICE_QUEUES cannot be `3`: expected a whole number from 1 to 2"
        );
        assert_eq!(
            told("SENSORIUM_DEVICE_THREADS", "many"),
            "SENSORIUM_DEVICE_THREADS cannot be `many`: expected `auto`, or a whole number from 1 to 256"
        );
        assert_eq!(
            told("SENSORIUM_DEVICE_ARENA_MIB", ""),
            "SENSORIUM_DEVICE_ARENA_MIB cannot be ``: expected a whole number from 16 to 1048576"
        );
        assert_eq!(
            told("SENSORIUM_DEVICE_ALLOW_FALLBACK", "yes"),
            "SENSORIUM_DEVICE_ALLOW_FALLBACK cannot be `yes`: expected `true` or `false`"
        );
        assert_eq!(
            told("SENSORIUM_DEVICE_BF16_DOT", "on"),
            "SENSORIUM_DEVICE_BF16_DOT cannot be `on`: expected `auto` or `off`"
        );
        assert!(told("SENSORIUM_DEVICE_TRACE_REGION_MIB", "-1").ends_with("from 1 to 1048576"));
        assert!(told("SENSORIUM_DEVICE_SPIN_US", "1e3").ends_with("from 0 to 1000000"));
        let backend = told("SENSORIUM_DEVICE_BACKEND", "gpu");
        assert!(
            backend.starts_with("SENSORIUM_DEVICE_BACKEND cannot be `gpu`: expected `cpu`"),
            "{backend}"
        );
    }

    #[test]
    fn a_variable_that_does_not_exist_is_told_with_the_nearest_one() {
        let told = |name: &str| environment(&[(name, "1")]).unwrap_err().to_string();
        assert_eq!(
            told("SENSORIUM_DEVICE_QUEUE"),
            "SENSORIUM_DEVICE_QUEUE is no setting of the device: did you mean SENSORIUM_DEVICE_QUEUES?"
        );
        assert!(told("SENSORIUM_DEVICE_ARENA_MB").ends_with("did you mean SENSORIUM_DEVICE_ARENA_MIB?"));
        assert!(told("SENSORIUM_DEVICE_queues").ends_with("did you mean SENSORIUM_DEVICE_QUEUES?"));
        assert!(
            told("SENSORIUM_DEVICE_GRID")
                .contains("there are SENSORIUM_DEVICE_BACKEND, SENSORIUM_DEVICE_THREADS, ")
        );
    }
}
