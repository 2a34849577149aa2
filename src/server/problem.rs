//! Requests that are not served, as answers.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::answers::{ProblemAnswer, ProblemDetail, ProblemPlace};
use crate::io::forms::InputError;

/// Why a request is not served.
#[derive(Debug)]
pub(super) enum Problem {
    /// The client's data or parameters.
    Input(String),
    /// A body that is not JSON of the form.
    Schema(ProblemPlace),
    /// A body of another type.
    MediaType,
    /// A body that does not come in time.
    SlowBody,
    /// No token, or another one.
    Unauthorized,
    /// A service of this machine alone, asked by another name.
    Host,
    /// Nothing is at this path.
    NotFound,
    /// The path takes other methods.
    Method,
    /// There is no model, or no room, now.
    Unavailable(String),
    /// The model failed.
    Failed(String),
}

impl From<InputError> for Problem {
    fn from(error: InputError) -> Self {
        Self::Input(error.to_string())
    }
}

impl Problem {
    fn status(&self) -> StatusCode {
        match self {
            Self::Input(_) => StatusCode::BAD_REQUEST,
            Self::Schema(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Host => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn detail(self) -> ProblemDetail {
        let text = |text: &str| ProblemDetail::Text(text.to_owned());
        match self {
            Self::Input(reason) | Self::Unavailable(reason) => ProblemDetail::Text(reason),
            Self::Failed(reason) => ProblemDetail::Text(format!("inference failed: {reason}")),
            Self::Schema(place) => ProblemDetail::Places(vec![place]),
            Self::MediaType => text("the body is application/json"),
            Self::SlowBody => text("the body did not come in time"),
            Self::Unauthorized => text("a bearer token is needed"),
            Self::Host => {
                text("this service is for its own machine alone, as localhost or by its loopback address")
            }
            Self::NotFound => text("nothing is here; GET / lists the routes"),
            Self::Method => text("the path takes other methods; the header Allow lists them"),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = (
            status,
            Json(ProblemAnswer {
                detail: self.detail(),
            }),
        )
            .into_response();
        let headers = response.headers_mut();
        match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // What is left of the body is not read.
            StatusCode::REQUEST_TIMEOUT => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
