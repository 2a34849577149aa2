//! The zenoh session of a node, set up as rmw_zenoh sets its own up: a peer that meets the others through a router on
//! this machine.

use std::time::Duration;

use zenoh::{Config, Session, Wait};

use crate::io::ros::RosError;
use crate::io::zenoh::words;

/// Time between two looks for a router.
const ROUTER_PAUSE: Duration = Duration::from_secs(1);

/// What a session is made from, the later ones over the earlier: the configuration of rmw_zenoh or a file in its
/// place, these endpoints, then the single settings of the environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionSettings {
    /// Endpoints to connect to, such as `tcp/192.168.0.10:7447`; empty: a router on this machine.
    pub connect: Vec<String>,
    /// Endpoints to listen on; empty: any free port of this machine.
    pub listen: Vec<String>,
    /// How long a message waits for room in the queue to the network before it is dropped. `None`: as long as rmw_zenoh
    /// lets it wait, 1 ms, and 50 ms for one in many pieces.
    pub patience: Option<Duration>,
    /// What the environment says.
    pub environment: SessionEnvironment,
}

/// The environment variables that rmw_zenoh knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionEnvironment {
    /// `ZENOH_SESSION_CONFIG_URI`: a file of zenoh settings in place of the defaults.
    pub config_file: Option<String>,
    /// `ZENOH_CONFIG_OVERRIDE`: single settings, `key=value` joined by `;`.
    pub overrides: Option<String>,
    /// `ZENOH_ROUTER_CHECK_ATTEMPTS`: how often a router is looked for before going on without; 0: until there is one,
    /// below 0: never.
    pub router_attempts: i64,
}

impl SessionEnvironment {
    /// Reads the variables through `get`.
    ///
    /// # Errors
    /// [`RosError::Open`] for a number that is none.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, RosError> {
        let get = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        let attempts = "ZENOH_ROUTER_CHECK_ATTEMPTS";
        let router_attempts = match get(attempts) {
            None => 1,
            Some(text) => text
                .trim()
                .parse()
                .map_err(|_| RosError::Open(format!("{attempts} is {text:?}; expected a whole number")))?,
        };
        Ok(Self {
            config_file: get("ZENOH_SESSION_CONFIG_URI"),
            overrides: get("ZENOH_CONFIG_OVERRIDE"),
            router_attempts,
        })
    }

    /// Reads the variables of this process.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn of_process() -> Result<Self, RosError> {
        Self::read(|name| std::env::var(name).ok())
    }
}

/// The ROS domain that `ROS_DOMAIN_ID` names: 0 if it names none.
///
/// # Errors
/// [`RosError::Open`] for a number that is none, or above 232, the last that DDS has ports for.
pub fn domain_of_process() -> Result<u32, RosError> {
    domain_of(std::env::var("ROS_DOMAIN_ID").ok().as_deref())
}

fn domain_of(text: Option<&str>) -> Result<u32, RosError> {
    let text = text.unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().ok().filter(|domain| *domain <= 232).ok_or_else(|| {
        RosError::Open(format!(
            "ROS_DOMAIN_ID is {text:?}; expected a number from 0 to 232"
        ))
    })
}

/// A zenoh router, by which nodes of rmw_zenoh find each other; it works until it is dropped.
#[derive(Debug)]
pub struct Router(Session);

/// Where a router listens that is told nothing else.
pub const ROUTER_ENDPOINT: &str = "tcp/[::]:7447";

impl Router {
    /// Starts a router on these endpoints; on [`ROUTER_ENDPOINT`] if there are none and no file. `config_file` (`ZENOH_ROUTER_CONFIG_URI`) takes the place of rmw_zenoh's
    /// settings.
    ///
    /// # Errors
    /// [`RosError::Open`]: a file that cannot be read, an endpoint that is taken.
    pub fn start(
        listen: &[String],
        config_file: Option<&str>,
        environment: &SessionEnvironment,
    ) -> Result<Self, RosError> {
        let mut config = match config_file {
            Some(file) => Config::from_file(file)
                .map_err(|error| RosError::Open(format!("{file}: {}", words(&error))))?,
            None => {
                let mut config = Config::default();
                let endpoints = serde_json::Value::from(vec![ROUTER_ENDPOINT]).to_string();
                set(&mut config, "listen/endpoints", &endpoints)?;
                set(&mut config, "scouting/multicast/enabled", "false")?;
                set(&mut config, "timestamping/enabled", "true")?;
                set(&mut config, "transport/link/tx/lease", "60000")?;
                config
            }
        };
        set(&mut config, "mode", "\"router\"")?;
        if !listen.is_empty() {
            set(
                &mut config,
                "listen/endpoints",
                &serde_json::Value::from(listen).to_string(),
            )?;
        }
        override_settings(&mut config, environment)?;
        let session = zenoh::open(config).wait();
        session.map(Self).map_err(|error| RosError::Open(words(&error)))
    }

    /// Ends the router.
    ///
    /// # Errors
    /// [`RosError::Close`].
    pub fn stop(self) -> Result<(), RosError> {
        let closed = self.0.close().wait();
        closed.map_err(|error| RosError::Close(words(&error)))
    }
}

/// Opens the session and looks for the router. Waits as the environment says.
///
/// # Errors
/// [`RosError::Open`].
pub(super) fn open(settings: &SessionSettings) -> Result<Session, RosError> {
    let config = configure(settings)?;
    let session = zenoh::open(config)
        .wait()
        .map_err(|error| RosError::Open(words(&error)))?;
    await_router(&session, settings);
    Ok(session)
}

fn configure(settings: &SessionSettings) -> Result<Config, RosError> {
    let environment = &settings.environment;
    let mut config = match &environment.config_file {
        Some(file) => Config::from_file(file)
            .map_err(|error| RosError::Open(format!("ZENOH_SESSION_CONFIG_URI: {}", words(&error))))?,
        None => {
            let mut config = Config::default();
            for (key, value) in defaults() {
                set(&mut config, key, value)?;
            }
            config
        }
    };
    for (key, endpoints) in [
        ("connect/endpoints", &settings.connect),
        ("listen/endpoints", &settings.listen),
    ] {
        if !endpoints.is_empty() {
            let value = serde_json::Value::from(endpoints.clone()).to_string();
            set(&mut config, key, &value)?;
        }
    }
    if let Some(patience) = settings.patience {
        for key in ["wait_before_drop", "max_wait_before_drop_fragments"] {
            let key = format!("transport/link/tx/queue/congestion_control/drop/{key}");
            set(&mut config, &key, &patience.as_micros().to_string())?;
        }
    }
    override_settings(&mut config, environment)?;
    Ok(config)
}

fn override_settings(config: &mut Config, environment: &SessionEnvironment) -> Result<(), RosError> {
    for setting in environment.overrides.as_deref().unwrap_or_default().split(';') {
        if setting.trim().is_empty() {
            continue;
        }
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            RosError::Open(format!(
                "ZENOH_CONFIG_OVERRIDE has {setting:?}; expected key=value"
            ))
        })?;
        set(config, key.trim(), value.trim())?;
    }
    Ok(())
}

/// The settings of rmw_zenoh that differ from zenoh's own.
fn defaults() -> [(&'static str, &'static str); 8] {
    [
        ("mode", "\"peer\""),
        ("connect/endpoints", "[\"tcp/localhost:7447\"]"),
        ("listen/endpoints", "[\"tcp/localhost:0\"]"),
        ("scouting/multicast/enabled", "false"),
        ("scouting/gossip/enabled", "true"),
        ("timestamping/enabled", "true"),
        ("queries_default_timeout", "600000"),
        ("transport/link/tx/lease", "60000"),
    ]
}

fn set(config: &mut Config, key: &str, value: &str) -> Result<(), RosError> {
    config
        .insert_json5(key, value)
        .map_err(|error| RosError::Open(format!("zenoh setting {key} = {value}: {}", words(&error))))
}

/// Looks for a router as often as is asked; going on without one is fine, for the session keeps trying.
fn await_router(session: &Session, settings: &SessionSettings) {
    let attempts = settings.environment.router_attempts;
    // Endpoints that are named need no router on this machine.
    if attempts < 0 || !settings.connect.is_empty() || !settings.listen.is_empty() {
        return;
    }
    for attempt in 1_i64.. {
        if session.info().routers_zid().wait().next().is_some() {
            return;
        }
        if attempt == 1 {
            tracing::warn!(
                "no zenoh router can be reached yet, so that nodes do not find each other: start one with `sensorium \
                 router` (or `ros2 run rmw_zenoh_cpp rmw_zenohd`), or name endpoints to connect to"
            );
        }
        if attempts > 0 && attempt >= attempts {
            return;
        }
        std::thread::sleep(ROUTER_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Result<SessionEnvironment, RosError> {
        SessionEnvironment::read(|name| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn get(config: &Config, key: &str) -> String {
        config.get_json(key).unwrap_or_default()
    }

    #[test]
    fn the_default_session_is_that_of_rmw_zenoh() -> Result<(), RosError> {
        let config = configure(&SessionSettings::default())?;
        for (key, value) in defaults() {
            assert_eq!(get(&config, key), value, "{key}");
        }
        Ok(())
    }

    #[test]
    fn later_settings_take_the_place_of_earlier_ones() -> Result<(), RosError> {
        let mut settings = SessionSettings {
            connect: vec!["tcp/10.0.0.1:1".into()],
            ..SessionSettings::default()
        };
        assert_eq!(
            get(&configure(&settings)?, "connect/endpoints"),
            "[\"tcp/10.0.0.1:1\"]"
        );
        settings.environment = environment(&[(
            "ZENOH_CONFIG_OVERRIDE",
            " mode=\"client\" ;connect/endpoints=[\"tcp/10.0.0.2:1\"];",
        )])?;
        settings.patience = Some(Duration::from_millis(20));
        let config = configure(&settings)?;
        let waits = "transport/link/tx/queue/congestion_control/drop/wait_before_drop";
        assert_eq!(get(&config, waits), "20000");
        assert_eq!(get(&config, "connect/endpoints"), "[\"tcp/10.0.0.2:1\"]");
        assert_eq!(get(&config, "mode"), "\"client\"");
        Ok(())
    }

    #[test]
    fn what_the_environment_gets_wrong_is_told_by_name() -> Result<(), RosError> {
        assert_eq!(environment(&[])?.router_attempts, 1);
        assert_eq!(
            environment(&[("ZENOH_ROUTER_CHECK_ATTEMPTS", " -1")])?.router_attempts,
            -1
        );
        let wrong = environment(&[("ZENOH_ROUTER_CHECK_ATTEMPTS", "often")]);
        assert!(wrong.is_err_and(|e| e.to_string().contains("ZENOH_ROUTER_CHECK_ATTEMPTS")));
        for (name, value, told) in [
            ("ZENOH_CONFIG_OVERRIDE", "mode", "expected key=value"),
            ("ZENOH_CONFIG_OVERRIDE", "no/such/key=1", "no/such/key"),
            (
                "ZENOH_SESSION_CONFIG_URI",
                "/no/such/file.json5",
                "ZENOH_SESSION_CONFIG_URI",
            ),
        ] {
            let settings = SessionSettings {
                environment: environment(&[(name, value)])?,
                ..SessionSettings::default()
            };
            let error = configure(&settings).map(drop).map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|text| text.contains(told)), "{error:?}");
        }
        Ok(())
    }

    #[test]
    fn domains_are_those_that_dds_has_ports_for() {
        assert_eq!(domain_of(None), Ok(0));
        assert_eq!(domain_of(Some("42")), Ok(42));
        for wrong in ["-1", "233", "x"] {
            assert!(domain_of(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
