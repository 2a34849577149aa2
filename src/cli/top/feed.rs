//! Where the looks come from: `/status` of a run.

use std::time::Duration;

use ureq::Agent;
use ureq::http::StatusCode;

use crate::server::observe::Token;
use crate::telemetry::live::LiveStatus;

/// Longest time that a look may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// Largest status that is read: that of thousands of streams.
const LARGEST: u64 = 4 << 20;

/// Asks a run how it is.
#[derive(Debug)]
pub(super) struct Feed {
    agent: Agent,
    base: String,
    token: Option<Token>,
}

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
pub(super) enum FeedError {
    /// Nobody answers.
    #[error("no run answers at {url}: {reason}")]
    Silent {
        /// What was asked.
        url: String,
        /// Why.
        reason: String,
    },
    /// The run asks for a token, or for another one.
    #[error("the run at {url} asks for a token")]
    Token {
        /// What was asked.
        url: String,
    },
    /// Something else answers.
    #[error("what answers at {url} is no run of this version: {reason}")]
    Other {
        /// What was asked.
        url: String,
        /// Why it is none.
        reason: String,
    },
}

impl FeedError {
    /// What to do about it.
    pub(super) const fn help(&self) -> &'static str {
        match self {
            Self::Silent { .. } => "start the run with `--listen 127.0.0.1:9100`, and name its address here",
            Self::Token { .. } => "name its file with --token-file, or set SENSORIUM_HTTP_TOKEN",
            Self::Other { .. } => "name the address that `sensorium run --listen` shows",
        }
    }
}

impl Feed {
    /// Asks at a URL, such as `http://127.0.0.1:9100`; `http://` may be left away.
    pub(super) fn new(url: &str, token: Option<Token>) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .build();
        let base = url.trim_end_matches('/');
        Self {
            agent: config.into(),
            base: match base.contains("://") {
                true => base.to_owned(),
                false => format!("http://{base}"),
            },
            token,
        }
    }

    /// How the run is now.
    ///
    /// # Errors
    /// Nobody answers, or it is no run.
    pub(super) fn look(&self) -> Result<LiveStatus, FeedError> {
        let url = || self.base.clone();
        let silent = |error: ureq::Error| FeedError::Silent {
            url: url(),
            reason: error.to_string(),
        };
        let mut request = self.agent.get(format!("{}/status", self.base));
        if let Some(token) = &self.token {
            request = request.header("Authorization", token.header());
        }
        let mut answer = request.call().map_err(silent)?;
        let other = |reason: String| FeedError::Other { url: url(), reason };
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err(FeedError::Token { url: url() }),
            code => return Err(other(format!("it answers {code}"))),
        }
        let text = answer.body_mut().with_config().limit(LARGEST).read_to_string();
        let text = text.map_err(silent)?;
        serde_json::from_str(&text).map_err(|error| other(error.to_string()))
    }
}
