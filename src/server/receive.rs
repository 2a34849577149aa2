//! Reading a request's body within limits of bytes and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;

/// Unit in which the memory of all bodies is counted.
const UNIT_BYTES: usize = 1024;
/// How long a body that is too long is taken and thrown away.
const PASS_OVER: Duration = Duration::from_secs(1);

/// Memory for the bodies of all requests together.
#[derive(Debug, Clone)]
pub(super) struct Buffers(Arc<Semaphore>);

/// A body, and its share of the memory of all.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) bytes: Vec<u8>,
    _share: Option<OwnedSemaphorePermit>,
}

impl Buffers {
    pub(super) fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(units)))
    }

    /// Reads a body of JSON of at most `max_bytes`. A length that is announced is held against the limit before anything is
    /// read, and bytes are counted as they come, whatever was announced.
    pub(super) async fn receive(
        &self,
        headers: &HeaderMap,
        body: Body,
        max_bytes: usize,
        within: Duration,
    ) -> Result<Received, Problem> {
        if !is_json(headers) {
            return Err(Problem::MediaType);
        }
        let too_long =
            |found: String| Problem::Input(format!("body: {found} bytes; at most {max_bytes} are taken"));
        let announced = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok());
        let announced = announced.and_then(|text| text.parse::<u64>().ok());
        let awaits = headers.contains_key(header::EXPECT);
        let mut chunks = body.into_data_stream();
        if let Some(length) = announced.filter(|&length| length > max_bytes as u64) {
            if !awaits {
                pass_over(&mut chunks, max_bytes).await;
            }
            return Err(too_long(length.to_string()));
        }
        let read = async {
            let mut received = Received {
                bytes: Vec::new(),
                _share: None,
            };
            let mut counted = 0;
            while let Some(chunk) = chunks.next().await {
                let chunk = chunk.map_err(|error| Problem::Input(format!("body: cut off: {error}")))?;
                let length = received.bytes.len() + chunk.len();
                if length > max_bytes {
                    drop(received);
                    pass_over(&mut chunks, max_bytes).await;
                    return Err(too_long(format!("more than {max_bytes}")));
                }
                let units = length.div_ceil(UNIT_BYTES);
                if units > counted {
                    self.count(&mut received, units - counted)?;
                    counted = units;
                }
                received.bytes.extend_from_slice(&chunk);
            }
            Ok(received)
        };
        tokio::time::timeout(within, read)
            .await
            .map_err(|_| Problem::SlowBody)?
    }

    /// Adds to a body's share of the memory.
    fn count(&self, received: &mut Received, units: usize) -> Result<(), Problem> {
        let full =
            || Problem::Unavailable("the bodies of other requests take all memory for them".to_owned());
        let units = u32::try_from(units).map_err(|_| full())?;
        let more = Arc::clone(&self.0)
            .try_acquire_many_owned(units)
            .map_err(|_| full())?;
        match &mut received._share {
            Some(share) => share.merge(more),
            share @ None => *share = Some(more),
        }
        Ok(())
    }
}

/// Takes what a client still sends, for a short while and up to a length, and keeps nothing: many clients read an answer
/// only when they have sent all.
async fn pass_over(chunks: &mut BodyDataStream, max_bytes: usize) {
    let pass = async {
        let mut left = max_bytes;
        while let Some(Ok(chunk)) = chunks.next().await {
            match left.checked_sub(chunk.len()) {
                Some(less) => left = less,
                None => break,
            }
        }
    };
    // That the time is up is no error: the answer comes all the same.
    let _ = tokio::time::timeout(PASS_OVER, pass).await;
}

/// Whether the body is said to be JSON. A page of another site can send other types without being asked first.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let kind = kind
        .and_then(|kind| kind.split(';').next())
        .unwrap_or_default()
        .trim();
    kind.eq_ignore_ascii_case("application/json")
}
