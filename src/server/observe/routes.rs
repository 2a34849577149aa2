//! Routes and answers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

use super::{Observed, control};
use crate::server::answers::{ProblemAnswer, ProblemDetail};
use crate::server::host::names_this_machine;
use crate::telemetry::live::LiveState;

/// Media type of the text format of Prometheus.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Largest body of a request.
const BODY_BYTES: usize = 64 * 1024;
/// Longest time that an answer may take: a little more than a stream takes to drain at most.
const ANSWER: Duration = Duration::from_secs(35);

/// Paths, as `/` lists them.
const ROUTES: [(&str, &str); 12] = [
    (
        "POST /control/reload",
        "read the pipeline file again and take over what changed",
    ),
    ("GET /", "this list"),
    (
        "GET /health",
        "200 while frames are worked on, 503 otherwise; needs no token",
    ),
    ("GET /metrics", "counters, histograms and readings for Prometheus"),
    ("GET /status", "the run at this moment, as JSON"),
    (
        "GET /control",
        "state, streams, actors and parameters, and what led to the state",
    ),
    (
        "POST /control/pause",
        "{\"stream\": NAME}: drop the frames of a stream",
    ),
    ("POST /control/resume", "{\"stream\": NAME}: take them again"),
    (
        "POST /control/drain",
        "{\"stream\": NAME}: take no more, wait for those under way",
    ),
    (
        "POST /control/add_stream",
        "{\"source\": NODE, \"topic\": TOPIC}: play one more topic",
    ),
    (
        "POST /control/remove_stream",
        "{\"source\": NODE, \"topic\": TOPIC}: drain a topic and play it no more",
    ),
    (
        "POST /control/set_param",
        "{\"node\": DETECTOR, \"name\": NAME, \"value\": VALUE}: change a parameter",
    ),
];

pub(super) type Shared = Arc<Observed>;

pub(super) fn router(observed: Observed) -> Router {
    let shared: Shared = Arc::new(observed);
    let guarded = Router::new()
        .route("/", get(list))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .merge(control::routes().route_layer(from_fn_with_state(Arc::clone(&shared), control::require_right)))
        .route_layer(from_fn_with_state(Arc::clone(&shared), require_token));
    Router::new()
        .route("/health", get(health))
        .merge(guarded)
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(Arc::clone(&shared), require_name))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(axum::middleware::from_fn(in_time))
        .with_state(shared)
}

async fn list() -> Response {
    let routes: serde_json::Map<_, _> = ROUTES
        .iter()
        .map(|&(route, what)| (route.to_owned(), what.into()))
        .collect();
    Json(json!({ "name": "sensorium", "version": env!("CARGO_PKG_VERSION"), "routes": routes }))
        .into_response()
}

async fn metrics(State(observed): State<Shared>) -> Response {
    let text = observed.metrics.text(&observed.live);
    ([(header::CONTENT_TYPE, PROMETHEUS)], text).into_response()
}

async fn status(State(observed): State<Shared>) -> Response {
    Json(observed.live.status()).into_response()
}

async fn health(State(observed): State<Shared>) -> Response {
    let state = observed.live.state();
    let code = match state {
        LiveState::Ready | LiveState::Degraded => StatusCode::OK,
        LiveState::Starting | LiveState::Failed | LiveState::Ended => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(json!({ "state": state.name() }))).into_response()
}

async fn unknown(request: Request) -> Response {
    let told = format!("there is no {}; GET / lists what there is", request.uri().path());
    refuse(StatusCode::NOT_FOUND, &told)
}

async fn not_allowed(request: Request) -> Response {
    let told = format!(
        "{} takes no {}; GET / lists what it takes",
        request.uri().path(),
        request.method()
    );
    refuse(StatusCode::METHOD_NOT_ALLOWED, &told)
}

/// An error as JSON, of the form that `serve` has, too.
pub(super) fn refuse(code: StatusCode, told: &str) -> Response {
    let detail = ProblemDetail::Text(told.to_owned());
    (code, Json(ProblemAnswer { detail })).into_response()
}

/// Lets through only who asks for this machine, where only this machine is answered.
async fn require_name(State(observed): State<Shared>, request: Request, next: Next) -> Response {
    if observed.token.is_none() && observed.is_local && !names_this_machine(request.headers()) {
        return refuse(
            StatusCode::FORBIDDEN,
            "a run is watched here as localhost or by a loopback address",
        );
    }
    next.run(request).await
}

async fn require_token(State(observed): State<Shared>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(header::AUTHORIZATION);
    let is_shown = observed
        .token
        .as_ref()
        .is_none_or(|token| shown.is_some_and(|shown| token.is_shown_by(shown.as_bytes())));
    if is_shown {
        return next.run(request).await;
    }
    let mut response = refuse(
        StatusCode::UNAUTHORIZED,
        "a token is required: Authorization: Bearer TOKEN",
    );
    let name: HeaderName = header::WWW_AUTHENTICATE;
    response
        .headers_mut()
        .insert(name, HeaderValue::from_static("Bearer"));
    response
}

async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER, next.run(request)).await {
        Ok(response) => response,
        Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "the answer took too long"),
    }
}
