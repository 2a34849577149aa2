//! Changes to a run while it lasts.
//!
//! Only who may is let through: a client of this machine, or one that shows the token. Browsers are told apart by the
//! headers that they alone send, so that no page that somebody happens to look at can change a run.

use std::future::Future;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::routes::{Shared, refuse};
use crate::runtime::{Control, ControlError};

/// A stream, by its name or its topic.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    stream: String,
}

/// A topic of a source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Topic {
    source: String,
    topic: String,
}

/// A parameter of a detector.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameter {
    node: String,
    name: String,
    value: Value,
}

type Body<T> = Result<Json<T>, JsonRejection>;

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/control", get(look))
        .route("/control/pause", post(pause))
        .route("/control/resume", post(resume))
        .route("/control/drain", post(drain))
        .route("/control/add_stream", post(add_stream))
        .route("/control/remove_stream", post(remove_stream))
        .route("/control/set_param", post(set_param))
}

async fn look(State(observed): State<Shared>) -> Response {
    Json(observed.control.status()).into_response()
}

async fn pause(State(observed): State<Shared>, body: Body<Stream>) -> Response {
    change(&observed.control, body, |control, Stream { stream }| async move {
        control.pause(&stream).await
    })
    .await
}

async fn resume(State(observed): State<Shared>, body: Body<Stream>) -> Response {
    change(&observed.control, body, |control, Stream { stream }| async move {
        control.resume(&stream).await
    })
    .await
}

async fn drain(State(observed): State<Shared>, body: Body<Stream>) -> Response {
    change(&observed.control, body, |control, Stream { stream }| async move {
        control.drain(&stream).await
    })
    .await
}

async fn add_stream(State(observed): State<Shared>, body: Body<Topic>) -> Response {
    change(
        &observed.control,
        body,
        |control, Topic { source, topic }| async move { control.add_stream(&source, &topic).await },
    )
    .await
}

async fn remove_stream(State(observed): State<Shared>, body: Body<Topic>) -> Response {
    change(
        &observed.control,
        body,
        |control, Topic { source, topic }| async move { control.remove_stream(&source, &topic).await },
    )
    .await
}

async fn set_param(State(observed): State<Shared>, body: Body<Parameter>) -> Response {
    change(&observed.control, body, |control, Parameter { node, name, value }| async move {
        control.set_param(&node, &name, value).await
    })
    .await
}

/// Makes a change, also if the client does not wait for it, and answers.
async fn change<T, F>(control: &Control, body: Body<T>, make: impl FnOnce(Control, T) -> F) -> Response
where
    F: Future<Output = Result<(), ControlError>> + Send + 'static,
{
    let asked = match body {
        Ok(Json(asked)) => asked,
        Err(rejection) => return refuse(rejection.status(), &rejection.body_text()),
    };
    match tokio::spawn(make(control.clone(), asked)).await {
        Ok(Ok(())) => Json(json!({ "done": true })).into_response(),
        Ok(Err(error)) => refuse(code_of(&error), &error.to_string()),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

const fn code_of(error: &ControlError) -> StatusCode {
    match error {
        ControlError::Node { .. } | ControlError::Stream { .. } => StatusCode::NOT_FOUND,
        ControlError::NotRunning | ControlError::Deterministic | ControlError::Flow { .. } => {
            StatusCode::CONFLICT
        }
        ControlError::StillUnderWay { .. } => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// Lets through only who may change a run.
pub(super) async fn require_right(State(observed): State<Shared>, request: Request, next: Next) -> Response {
    let is_change = request.method() == axum::http::Method::POST;
    if is_change && request.headers().contains_key(header::ORIGIN) {
        return refuse(StatusCode::FORBIDDEN, "a run is not changed from a web page");
    }
    if is_change && !observed.is_local && observed.token.is_none() {
        let told = "other machines can reach this address: a run is changed there only with a token";
        return refuse(StatusCode::FORBIDDEN, told);
    }
    next.run(request).await
}
