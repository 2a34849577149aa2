//! The routes and what they do.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State as Extract};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use metrics_exporter_prometheus::BuildError;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::answers::{
    HealthAnswer, InfoAnswer, InputAnswer, ModelAnswer, ModelsAnswer, RoutesAnswer, ServiceStatus,
};
use super::decode::{decode, input_of, parse};
use super::engine::{Engine, EngineError, Job, ModelFacts, Phase, Refused};
use super::host::names_this_machine;
use super::metrics::ServiceMetrics;
use super::openapi::openapi;
use super::options::{ServeOptions, ServiceFacts};
use super::problem::Problem;
use super::receive::{Buffers, Received};
use crate::io::forms::{BodyTiming, DEFAULT_POINT_FIELDS, ToBody, round_widened};
use crate::perception::{Outcome, Sensor};

/// Every route: method, path, whether it asks for the token, and what it does.
pub(super) const ROUTES: [(&str, &str, bool, &str); 8] = [
    ("GET", "/", true, "the routes"),
    (
        "GET",
        "/health",
        false,
        "whether requests are run: ok, starting or error",
    ),
    ("GET", "/v1/health", false, "the same"),
    ("GET", "/info", true, "the model, its device and what it takes"),
    ("GET", "/v1/models", true, "the model in a list"),
    (
        "GET",
        "/metrics",
        true,
        "counters and times in Prometheus' text form",
    ),
    ("GET", "/openapi.json", true, "the description of this service"),
    ("POST", "/predict", true, "runs the model on a frame"),
];

/// What all requests share.
#[derive(Debug)]
pub(super) struct State {
    engine: Arc<dyn Engine>,
    options: ServeOptions,
    service: ServiceFacts,
    buffers: Buffers,
    /// Requests that run or wait.
    admitted: Arc<Semaphore>,
    /// Requests that run.
    places: Arc<Semaphore>,
    metrics: ServiceMetrics,
}

impl State {
    pub(super) fn new(
        engine: Arc<dyn Engine>,
        options: ServeOptions,
        service: ServiceFacts,
    ) -> Result<Self, BuildError> {
        let permits = |count: usize| Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Ok(Self {
            buffers: Buffers::new(options.max_buffered_bytes),
            admitted: permits(options.max_concurrent.saturating_add(options.max_waiting)),
            places: permits(options.max_concurrent),
            metrics: ServiceMetrics::new()?,
            engine,
            options,
            service,
        })
    }

    pub(super) const fn options(&self) -> &ServeOptions {
        &self.options
    }

    pub(super) const fn metrics(&self) -> &ServiceMetrics {
        &self.metrics
    }

    /// The model, if there is one.
    fn facts(&self) -> Result<Arc<ModelFacts>, Problem> {
        match &*self.engine.phase().borrow() {
            Phase::Ready(facts) => Ok(Arc::clone(facts)),
            Phase::Starting => Err(Problem::Unavailable("the model is starting".to_owned())),
            Phase::Failed(reason) => Err(Problem::Unavailable(format!("there is no model: {reason}"))),
        }
    }
}

/// All routes.
pub(super) fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/", get(routes))
        .route("/health", get(health))
        .route("/v1/health", get(health))
        .route("/info", get(info))
        .route("/v1/models", get(models))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(description))
        .route("/predict", post(predict))
        .fallback(|| async { Problem::NotFound })
        .method_not_allowed_fallback(|| async { Problem::Method })
        .layer(from_fn_with_state(Arc::clone(&state), guard))
        .with_state(state)
}

/// Asks for the token, and counts the answer.
async fn guard(Extract(state): Extract<Arc<State>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let known = ROUTES.iter().find(|(_, known, ..)| *known == path);
    let (route, guarded) = known.map_or(("other", true), |&(_, path, guarded, _)| (path, guarded));
    let authorization = request
        .headers()
        .get(header::AUTHORIZATION)
        .map(HeaderValue::as_bytes);
    let allowed = match &state.options.token {
        Some(token) if guarded => authorization.is_some_and(|shown| token.is_shown_by(shown)),
        _ => true,
    };
    // Whoever knows the token is no stranger, whatever name it asks for.
    let is_named = state.options.token.is_some()
        || !state.options.listen.ip().to_canonical().is_loopback()
        || names_this_machine(request.headers());
    let response = match (is_named, allowed) {
        (true, true) => next.run(request).await,
        (true, false) => Problem::Unauthorized.into_response(),
        (false, _) => Problem::Host.into_response(),
    };
    state.metrics.answered(route, response.status().as_u16());
    response
}

async fn routes() -> Json<RoutesAnswer> {
    let routes = ROUTES
        .iter()
        .map(|(method, path, _, about)| (format!("{method} {path}"), (*about).to_owned()));
    Json(RoutesAnswer {
        service: "sensorium".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        routes: routes.collect(),
    })
}

async fn health(Extract(state): Extract<Arc<State>>) -> Json<HealthAnswer> {
    let phase = state.engine.phase().borrow().clone();
    let (status, model, device, error) = match phase {
        Phase::Starting => (ServiceStatus::Starting, None, None, None),
        Phase::Failed(reason) => (ServiceStatus::Error, None, None, Some(reason)),
        Phase::Ready(facts) => {
            let device = facts.info.get("device").cloned();
            (ServiceStatus::Ok, Some(facts.name.to_string()), device, None)
        }
    };
    Json(HealthAnswer {
        status,
        model,
        device,
        error,
    })
}

async fn models(Extract(state): Extract<Arc<State>>) -> Json<ModelsAnswer> {
    let model = state.facts().ok().map(|facts| ModelAnswer {
        id: facts.name.to_string(),
        object: "model".to_owned(),
        owned_by: state.service.owner.clone(),
    });
    Json(ModelsAnswer {
        object: "list".to_owned(),
        data: model.into_iter().collect(),
    })
}

async fn info(Extract(state): Extract<Arc<State>>) -> Result<Json<InfoAnswer>, Problem> {
    let facts = state.facts()?;
    let mut told = facts.info.clone();
    round_widened(&mut told);
    let of = |name: &str| told.get(name).cloned().unwrap_or(Value::Null);
    let micros = |ms: f64| (ms * 1e3).round() / 1e3;
    let mut trace = of("trace");
    let timings = trace.get_mut("timings_ms").and_then(Value::as_object_mut);
    for time in timings.into_iter().flat_map(Map::values_mut) {
        *time = time.as_f64().map(micros).into();
    }
    let compile_params = json!({ "queues": trace["queues"], "stage_inputs": trace["stage_inputs"] });
    let kind = input_of(facts.sensor);
    let io = match facts.sensor {
        Sensor::Camera => "one image -> boxes in the image",
        Sensor::Lidar => "one point cloud -> boxes in space",
        Sensor::Set => "what several sensors saw at one time -> boxes in space",
    };
    let variants = of("variants");
    let variant = variants
        .as_array()
        .and_then(|names| names.last().cloned())
        .unwrap_or(Value::Null);
    Ok(Json(InfoAnswer {
        model: facts.name.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        task: state.service.task.clone(),
        io: io.to_owned(),
        weights: facts.weights.clone(),
        bundle: facts.bundle.clone(),
        device: of("device"),
        input: InputAnswer {
            kind: kind.to_owned(),
            max_body_bytes: state.options.max_body_bytes as u64,
            max_points: state.options.max_points as u64,
            point_fields: DEFAULT_POINT_FIELDS.map(str::to_owned).to_vec(),
            max_side_px: state.options.max_side_px as u64,
            camera_order: Vec::new(),
            require_calibration: false,
            past_sweeps: facts.past_sweeps as u64,
            extra_inputs: Vec::new(),
            input_schema: of("inputs"),
        },
        calibration_presets: state.service.presets.names().map(str::to_owned).collect(),
        labels: facts.labels.clone(),
        variants,
        warm: of("warm"),
        variant,
        runtime_params: of("params"),
        compile_params,
        warm_up_ms: trace["timings_ms"]["warm_up"].as_f64(),
        trace,
        boot_ms: micros(facts.boot.as_secs_f64() * 1e3),
        source: state.service.source.clone(),
    }))
}

async fn metrics(Extract(state): Extract<Arc<State>>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], state.metrics.render()).into_response()
}

async fn description() -> Json<&'static Value> {
    Json(openapi())
}

/// Counts a request as under way, and as abandoned if it is dropped before it is answered.
struct UnderWay<'a> {
    state: &'a State,
    answered: bool,
}

impl<'a> UnderWay<'a> {
    fn new(state: &'a State) -> Self {
        state.metrics.in_flight.increment(1.0);
        Self {
            state,
            answered: false,
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.state.metrics.in_flight.decrement(1.0);
        if !self.answered {
            self.state.metrics.abandoned.increment(1);
        }
    }
}

async fn predict(
    Extract(state): Extract<Arc<State>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut under_way = UnderWay::new(&state);
    let answer = answer(&state, &headers, body).await;
    under_way.answered = true;
    answer
}

async fn answer(state: &Arc<State>, headers: &HeaderMap, body: Body) -> Result<Response, Problem> {
    // Without a model nothing is read.
    state.facts()?;
    let options = &state.options;
    let received = state
        .buffers
        .receive(headers, body, options.max_body_bytes, options.body_timeout)
        .await?;
    let began = Instant::now();
    let deadline = began + options.request_timeout;
    let done = run(state, received, began, deadline);
    let done = tokio::time::timeout_at(deadline.into(), done).await;
    done.unwrap_or_else(|_| Err(late(options)))
}

fn late(options: &ServeOptions) -> Problem {
    Problem::Unavailable(format!("not done within {:?}", options.request_timeout))
}

async fn run(
    state: &Arc<State>,
    received: Received,
    began: Instant,
    deadline: Instant,
) -> Result<Response, Problem> {
    let admitted = Arc::clone(&state.admitted).try_acquire_owned();
    let admitted = admitted.map_err(|_| Problem::Unavailable(Refused::Busy.to_string()))?;
    let place = Arc::clone(&state.places).acquire_owned().await;
    // The semaphore is never closed.
    let place = place.map_err(|_| Problem::Unavailable("the service ends".to_owned()))?;
    state.metrics.waited.record(began.elapsed().as_secs_f64());
    // What is decoded keeps its place though the client goes away meanwhile.
    let places = (admitted, place);
    let decoding = Arc::clone(state);
    let work = move || (decode_body(&decoding, received), places);
    let (decoded, places) = tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Problem::Failed(format!("decoding: {error}")))?;
    let decoded = decoded?;
    state.metrics.part("decode", began.elapsed());
    let (reply, answered) = oneshot::channel();
    let submitted = state.engine.submit(Job {
        frame: decoded.frame,
        stream: decoded.stream,
        stamp_ns: decoded.stamp_ns,
        world_from_sensor: decoded.world_from_sensor,
        reset: decoded.reset,
        last: decoded.last,
        frame_id: decoded.frame_id,
        params: decoded.params,
        deadline,
        reply,
    });
    submitted.map_err(|refused| Problem::Unavailable(refused.to_string()))?;
    let outcome = answered
        .await
        .map_err(|_| Problem::Unavailable("the model went away".to_owned()))?;
    let outcome = outcome.map_err(|error| match error {
        error if error.is_callers() => Problem::Input(error.to_string()),
        EngineError::Reopening => Problem::Unavailable(error.to_string()),
        EngineError::Late => late(&state.options),
        error => Problem::Failed(error.to_string()),
    })?;
    let mut meta = Map::new();
    if let Some(dropped) = decoded.dropped {
        meta.insert("points_dropped".to_owned(), dropped.into());
    }
    let response = respond(state, outcome, decoded.form, meta);
    state.metrics.total.record(began.elapsed().as_secs_f64());
    drop::<(OwnedSemaphorePermit, OwnedSemaphorePermit)>(places);
    response
}

fn decode_body(state: &State, received: Received) -> Result<super::decode::Decoded, Problem> {
    let request = parse(&received.bytes)?;
    // Its share of the memory is free again.
    drop(received);
    decode(request, &*state.facts()?, &state.options, &state.service)
}

fn respond(
    state: &State,
    outcome: Outcome,
    form: crate::io::forms::BodyForm,
    mut meta: Map<String, Value>,
) -> Result<Response, Problem> {
    let timing = BodyTiming {
        preprocess: outcome.timing.prepare,
        device: outcome.timing.device,
        postprocess: outcome.timing.finish,
        total: outcome.timing.total,
    };
    state.metrics.part("preprocess", timing.preprocess);
    state.metrics.part("device", timing.device);
    state.metrics.part("postprocess", timing.postprocess);
    meta.insert("variant".to_owned(), outcome.variant.into());
    if let Some(fits) = outcome.within_capacity {
        meta.insert("within_capacity".to_owned(), fits.into());
    }
    let body = outcome.detections.to_body(form, &timing, meta);
    let body = body.map_err(|error| Problem::Failed(error.to_string()))?;
    Ok((StatusCode::OK, Json(body)).into_response())
}
