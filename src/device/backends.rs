//! The backends that can be opened, by name, and what opening one yields.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::config::nearest;
use super::{
    CaptureKind, CpuConfig, CpuDevice, Device, DeviceConfig, DeviceError, DeviceHealth, SimConfig, SimDevice,
};

/// Name of a backend, such as `cpu`. Those that exist come from [`Backends`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct BackendKind(&'static str);

impl BackendKind {
    /// The CPU device, which every machine has.
    pub const CPU: Self = Self("cpu");

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

/// A way to open a device.
#[derive(Debug, Clone, Copy)]
pub struct Backend {
    /// What configurations call it: small letters, digits and `_`.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// Whether work goes on without calls. A run sleeps until its device wakes it, so it needs such a one.
    pub runs_alone: bool,
    /// Opens it. A backend takes from the configuration what it has a use for.
    pub open: fn(&DeviceConfig) -> Result<Box<dyn Device>, DeviceError>,
}

impl Backend {
    /// Its name.
    #[must_use]
    pub const fn kind(&self) -> BackendKind {
        BackendKind(self.name)
    }
}

/// The backends of this program. A new one is one line in [`Backends::builtin`]: configurations, pipeline
/// files, the schema and the commands take the list from here.
const BUILTIN: &[Backend] = &[
    Backend {
        name: BackendKind::CPU.0,
        about: "The CPU device.",
        runs_alone: true,
        open: |config| Ok(Box::new(CpuDevice::open(&CpuConfig::from(config))?)),
    },
    Backend {
        name: "sim",
        about: "The CPU device's kernels in virtual time, in any order that events allow; finds races.",
        runs_alone: false,
        open: |config| Ok(Box::new(SimDevice::open(&SimConfig::from(config))?)),
    },
];

/// Backends by name.
#[derive(Debug, Clone)]
pub struct Backends(Vec<Backend>);

/// A name that no backend has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no backend `{name}`: expected {}", expected(.name, .known))]
pub struct UnknownBackend {
    /// The name.
    pub name: String,
    /// The names that exist.
    pub known: Vec<&'static str>,
}

/// The names that exist, in words, and which one was most likely meant.
pub(super) fn expected(name: &str, known: &[&str]) -> String {
    let quoted: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let nearest = nearest(name, known.iter().copied());
    let meant = nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    let listed = match quoted.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        one => one.concat(),
    };
    format!("{listed}{meant}")
}

/// Why there is no device.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration names a backend that the registry does not have.
    #[error(transparent)]
    Unknown(#[from] UnknownBackend),
    /// A run was to use a device that works only while it is called.
    #[error(
        "the {0} device works only while it is called, and a run sleeps until its device wakes it: choose another `backend`"
    )]
    NotAlone(BackendKind),
    /// The backend refused.
    #[error("the {backend} device cannot be opened: {source}{}", open_advice(*.backend))]
    Refused {
        /// The backend.
        backend: BackendKind,
        /// What it answered.
        source: Box<DeviceError>,
    },
    /// The backend refused, and so did the CPU device in its place.
    #[error(
        "the {backend} device cannot be opened: {source}; nor can the CPU device in its place: {fallback}"
    )]
    FallbackRefused {
        /// The backend.
        backend: BackendKind,
        /// What it answered.
        source: Box<DeviceError>,
        /// What the CPU device answered.
        fallback: Box<DeviceError>,
    },
}

fn open_advice(backend: BackendKind) -> &'static str {
    if backend == BackendKind::CPU {
        ""
    } else {
        ". Choose another `backend`, or allow the CPU device in its place with `allow_fallback: true` \
         (SENSORIUM_DEVICE_ALLOW_FALLBACK=true)"
    }
}

/// A device and how it came to be the one.
pub struct OpenedDevice {
    /// The device.
    pub device: Box<dyn Device>,
    /// How it was chosen.
    pub choice: DeviceChoice,
}

/// Which backend was asked for and which one is used.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceChoice {
    /// What the configuration asked for.
    pub requested: BackendKind,
    /// What was opened.
    pub used: BackendKind,
    /// Why it is not the one that was asked for.
    pub fallback: Option<DeviceError>,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.used)?;
        match &self.fallback {
            None => Ok(()),
            Some(reason) => write!(
                f,
                " in place of {}, which cannot be opened: {reason}",
                self.requested
            ),
        }
    }
}

impl fmt::Debug for OpenedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedDevice")
            .field("caps", self.device.caps())
            .field("choice", &self.choice)
            .finish()
    }
}

impl Default for Backends {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Backends {
    /// Those of this program.
    #[must_use]
    pub fn builtin() -> Self {
        Self(BUILTIN.to_vec())
    }

    /// Adds one; it takes the place of one of the same name.
    pub fn register(&mut self, backend: Backend) {
        self.0.retain(|known| known.name != backend.name);
        self.0.push(backend);
    }

    /// All of them, in the order of registration.
    pub fn iter(&self) -> impl Iterator<Item = &Backend> {
        self.0.iter()
    }

    /// The backend of that name.
    ///
    /// # Errors
    /// [`UnknownBackend`], with the names that exist.
    pub fn named(&self, name: &str) -> Result<BackendKind, UnknownBackend> {
        self.find(name).map(Backend::kind)
    }

    fn find(&self, name: &str) -> Result<&Backend, UnknownBackend> {
        let found = self.iter().find(|backend| backend.name == name);
        found.ok_or_else(|| UnknownBackend {
            name: name.to_owned(),
            known: self.iter().map(|backend| backend.name).collect(),
        })
    }

    /// Opens the device that `config` asks for, for a run that sleeps until the device wakes it.
    ///
    /// # Errors
    /// As [`Backends::open`]; [`OpenError::NotAlone`].
    pub fn open_for_run(&self, config: &DeviceConfig) -> Result<OpenedDevice, OpenError> {
        if self.find(config.backend.0)?.runs_alone {
            self.open(config)
        } else {
            Err(OpenError::NotAlone(config.backend))
        }
    }

    /// Opens the device that `config` asks for; if that fails and the configuration allows it, the CPU device
    /// in its place, with a warning.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self, config: &DeviceConfig) -> Result<OpenedDevice, OpenError> {
        let requested = config.backend;
        let choice = |used: &Backend, fallback| DeviceChoice {
            requested,
            used: used.kind(),
            fallback,
        };
        let backend = self.find(requested.0)?;
        let refusal = match (backend.open)(config) {
            Ok(device) => {
                return Ok(OpenedDevice {
                    device,
                    choice: choice(backend, None),
                });
            }
            Err(refusal) => refusal,
        };
        if !config.allow_fallback || requested == BackendKind::CPU {
            return Err(OpenError::Refused {
                backend: requested,
                source: Box::new(refusal),
            });
        }
        tracing::warn!(
            backend = requested.0,
            reason = %refusal,
            "the device cannot be opened; the CPU device takes its place"
        );
        let cpu = self.find(BackendKind::CPU.0)?;
        let device = (cpu.open)(config).map_err(|fallback| OpenError::FallbackRefused {
            backend: requested,
            source: Box::new(refusal.clone()),
            fallback: Box::new(fallback),
        })?;
        Ok(OpenedDevice {
            device,
            choice: choice(cpu, Some(refusal)),
        })
    }
}

impl DeviceConfig {
    /// Opens the device that this configuration asks for, as [`Backends::open`] does.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self) -> Result<OpenedDevice, OpenError> {
        Backends::builtin().open(self)
    }
}

impl OpenedDevice {
    /// What [`describe`] tells of the device, and what was asked for.
    #[must_use]
    pub fn describe(&self) -> Value {
        self.choice.describe(self.device.as_ref())
    }
}

impl DeviceChoice {
    /// What [`describe`] tells of the device, and what was asked for.
    #[must_use]
    pub fn describe(&self, device: &dyn Device) -> Value {
        let mut facts = Map::new();
        facts.insert("requested".into(), json!(self.requested));
        facts.insert("used".into(), json!(self.used));
        let reason = self.fallback.as_ref().map(ToString::to_string);
        facts.insert("fallback".into(), json!(reason));
        if let Value::Object(device) = describe(device) {
            facts.extend(device);
        }
        Value::Object(facts)
    }
}

/// A device in numbers, for reports and logs: what it can do, and how much of it is in use. Sizes are bytes.
#[must_use]
pub fn describe(device: &dyn Device) -> Value {
    let caps = device.caps();
    let memory = device.memory();
    let dtypes: Vec<String> = caps.dtypes.iter().map(ToString::to_string).collect();
    json!({
        "backend": caps.backend,
        "description": caps.description,
        "health": match device.health() {
            DeviceHealth::Healthy => "healthy".to_owned(),
            DeviceHealth::Lost { reason } => format!("lost: {reason}"),
            DeviceHealth::Closed => "closed".to_owned(),
        },
        "queues": caps.queues,
        "queue_depth": caps.queue_depth,
        "device_side_wait": caps.device_side_wait,
        "capture": match caps.capture {
            CaptureKind::Recorded => "recorded",
            CaptureKind::Captured => "captured",
            CaptureKind::Prebuilt => "prebuilt",
        },
        "alignment": caps.alignment,
        "memory": {
            "bytes": caps.memory_bytes,
            "used": memory.used_bytes,
            "largest_free": memory.largest_free_bytes,
        },
        "trace_region": { "bytes": caps.trace_region_bytes, "used": memory.trace_bytes },
        "programs": device.program_count(),
        "dtypes": dtypes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceLayer;

    fn config(backend: BackendKind) -> DeviceConfig {
        let layer = DeviceLayer {
            backend: Some(backend),
            arena_mib: Some(16),
            queues: Some(1),
            ..DeviceLayer::default()
        };
        DeviceConfig::default().with(&layer)
    }

    /// The program's backends and one whose hardware is not there.
    fn with_absent() -> Backends {
        let mut backends = Backends::builtin();
        backends.register(Backend {
            name: "absent",
            about: "A device that this machine does not have.",
            runs_alone: true,
            open: |_| Err(DeviceError::Config("no such card".into())),
        });
        backends
    }

    #[test]
    fn a_backend_that_refuses_is_an_error_that_says_what_to_do() {
        let backends = with_absent();
        let absent = backends.named("absent").unwrap();
        let error = backends.open(&config(absent)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the absent device cannot be opened: device configuration: no such card. Choose another `backend`, or \
             allow the CPU device in its place with `allow_fallback: true` (SENSORIUM_DEVICE_ALLOW_FALLBACK=true)"
        );
    }

    #[test]
    fn the_cpu_device_takes_the_place_of_a_backend_that_refuses_where_that_is_allowed() {
        let backends = with_absent();
        let absent = backends.named("absent").unwrap();
        let allowed = DeviceConfig {
            allow_fallback: true,
            ..config(absent)
        };
        let opened = backends.open(&allowed).unwrap();
        assert_eq!(
            (opened.choice.requested, opened.choice.used),
            (absent, BackendKind::CPU)
        );
        assert_eq!(
            opened.choice.to_string(),
            "cpu in place of absent, which cannot be opened: device configuration: no such card"
        );
        let facts = opened.describe();
        assert_eq!(
            (&facts["requested"], &facts["used"], &facts["fallback"]),
            (
                &json!("absent"),
                &json!("cpu"),
                &json!("device configuration: no such card")
            )
        );
        assert_eq!(
            (&facts["queues"], &facts["memory"]["bytes"]),
            (&json!(1), &json!(16 << 20))
        );

        let hopeless = DeviceConfig { queues: 9, ..allowed };
        let error = backends.open(&hopeless).unwrap_err().to_string();
        assert!(
            error.contains("no such card") && error.contains("queues must be 1 or 2"),
            "{error}"
        );
    }

    #[test]
    fn the_cpu_device_has_no_fallback() {
        let wrong = DeviceConfig {
            queues: 0,
            allow_fallback: true,
            ..config(BackendKind::CPU)
        };
        assert_eq!(
            wrong.open().unwrap_err().to_string(),
            "the cpu device cannot be opened: device configuration: queues must be 1 or 2, not 0"
        );
    }

    #[test]
    fn a_name_that_no_backend_has_is_told_with_those_that_exist() {
        let backends = with_absent();
        assert_eq!(
            backends.named("absnt").unwrap_err().to_string(),
            "there is no backend `absnt`: expected `cpu`, `sim` or `absent`; did you mean `absent`?"
        );
        let stranger = config(backends.named("absent").unwrap());
        assert!(matches!(stranger.open(), Err(OpenError::Unknown(_))));
        // One of the same name takes the place of the first.
        let mut again = with_absent();
        again.register(Backend {
            name: "absent",
            about: "Now it is there.",
            runs_alone: true,
            open: |config| Ok(Box::new(CpuDevice::open(&CpuConfig::from(config))?)),
        });
        assert_eq!(again.iter().count(), backends.iter().count());
        assert!(again.open(&stranger).is_ok());
    }

    #[test]
    fn a_device_that_works_only_while_it_is_called_is_no_device_for_a_run() {
        let backends = Backends::builtin();
        let sim = config(backends.named("sim").unwrap());
        assert_eq!(sim.open().unwrap().device.caps().backend, "sim");
        assert_eq!(
            backends.open_for_run(&sim).unwrap_err().to_string(),
            "the sim device works only while it is called, and a run sleeps until its device wakes it: choose another \
             `backend`"
        );
        assert!(backends.open_for_run(&config(BackendKind::CPU)).is_ok());
    }

    #[test]
    fn a_description_counts_what_is_in_use() {
        let mut opened = config(BackendKind::CPU).open().unwrap();
        let spec = crate::tensor::TensorSpec::new(&[100], crate::tensor::DType::F32).unwrap();
        opened
            .device
            .alloc(&spec, crate::device::BufferClass::Input)
            .unwrap();
        let facts = describe(opened.device.as_ref());
        assert_eq!(
            (&facts["backend"], &facts["health"]),
            (&json!("cpu"), &json!("healthy"))
        );
        assert_eq!(facts["memory"]["used"], json!(448), "rounded up to the alignment");
        assert_eq!(facts["programs"], json!(0));
        opened.device.close();
        assert_eq!(describe(opened.device.as_ref())["health"], json!("closed"));
    }
}
