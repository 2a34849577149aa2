//! Limits of bodies, time and waiting requests, and clients that are slow or gone.

use crate::tiny;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use sensorium::perception::Sensor;
use sensorium::server::ServeOptions;
use serde_json::json;
use tiny::Lab;

use super::{ByHand, PATIENCE, Service, await_that, box_of, facts, options, outcome, png, points, squares};

#[test]
fn a_body_that_is_too_long_is_refused_by_its_length_and_while_it_comes() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        max_body_bytes: 1 << 20,
        ..options()
    };
    let service = Service::start(engine, limits);
    let long = vec![b' '; (1 << 20) + 1];
    let reply = service.client().post("/predict", &long).unwrap();
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert!(
        reply.body["detail"]
            .as_str()
            .unwrap()
            .contains("at most 1048576 are taken"),
        "{}",
        reply.body
    );

    let mut stream = service.connect();
    stream
        .write_all(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let chunk = vec![b' '; 1 << 16];
    for _ in 0..17 {
        stream
            .write_all(format!("{:x}\r\n", chunk.len()).as_bytes())
            .unwrap();
        stream.write_all(&chunk).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    assert!(line.contains(" 400 "), "{line}");
}

#[test]
fn bodies_of_all_requests_together_have_a_limit() {
    let (engine, jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        max_buffered_bytes: 1 << 20,
        ..options()
    };
    let service = Service::start(engine, limits);
    let mut holding = service.connect();
    let head = format!(
        "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        1 << 20
    );
    holding.write_all(head.as_bytes()).unwrap();
    holding.write_all(&vec![b' '; (1 << 20) - 1024]).unwrap();
    // Once what is held has arrived, others of more than the rest are refused.
    let long = json!({ "points": [[1, 2, 3, 4]], "frame_id": " ".repeat(100_000) });
    await_that(|| service.predict(&long).status == 503);
    drop(holding);
    await_that(|| service.predict(&long).status == 400);
    drop(jobs);
}

#[test]
fn clients_that_drip_do_not_delay_others() {
    let lab = Lab::new();
    let service = squares(&lab);
    let (body, square) = png(5);
    // More than may run and wait together, all of them with an unfinished body.
    let slow: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut stream = service.connect();
            stream
                .write_all(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
                .unwrap();
            stream
        })
        .collect();
    for _ in 0..3 {
        for mut stream in &slow {
            stream.write_all(b" ").unwrap();
        }
        assert_eq!(box_of(&service.predict(&body)), square);
    }
    drop(slow);
}

#[test]
fn a_body_that_does_not_come_in_time_is_given_up() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        body_timeout: Duration::from_millis(50),
        ..options()
    };
    let service = Service::start(engine, limits);
    let mut stream = service.connect();
    stream
        .write_all(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("did not come in time"), "{answer}");
}

#[test]
fn a_head_that_does_not_come_in_time_ends_the_connection() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        header_timeout: Duration::from_millis(50),
        ..options()
    };
    let service = Service::start(engine, limits);
    let mut stream = service.connect();
    stream.write_all(b"GET /health HTTP/1.1\r\nHo").unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        write_timeout: Duration::from_millis(100),
        ..options()
    };
    let service = Service::start(engine, limits);
    let mut stream = service.connect();
    // Answers that nobody reads fill the buffers of both sides, and then requests do.
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let error = loop {
        if let Err(error) = stream.write_all(request) {
            break error;
        }
    };
    assert!(
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{error}"
    );
}

#[test]
fn no_more_requests_wait_than_may_and_the_rest_are_told_to_come_again() {
    let (engine, jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        max_concurrent: 1,
        max_waiting: 1,
        ..options()
    };
    let service = Service::start(engine, limits);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..5)
            .map(|_| scope.spawn(|| service.predict(&points())))
            .collect();
        // One runs, one waits; nothing is answered yet, so those that are done were refused.
        await_that(|| asked.iter().filter(|asked| asked.is_finished()).count() == 3);
        for _ in 0..2 {
            jobs.recv_timeout(PATIENCE)
                .unwrap()
                .reply
                .send(Ok(outcome(0.5)))
                .unwrap();
        }
        let mut statuses: Vec<u16> = asked
            .into_iter()
            .map(|asked| asked.join().unwrap().status)
            .collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 503, 503, 503]);
    });
}

/// Whether no request is under way.
fn jobs_empty(service: &Service) -> bool {
    let mut stream = service.connect();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.contains("sensorium_http_in_flight 0")
}

#[test]
fn a_request_that_takes_too_long_is_told_so() {
    let (engine, jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        request_timeout: Duration::from_millis(100),
        ..options()
    };
    let service = Service::start(engine, limits);
    let reply = service.predict(&points());
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert!(
        reply.body["detail"].as_str().unwrap().contains("not done within"),
        "{}",
        reply.body
    );
    let job = jobs.recv_timeout(PATIENCE).unwrap();
    await_that(|| job.reply.is_closed());
}

#[test]
fn work_of_a_client_that_is_gone_is_dropped() {
    let (engine, jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let service = Service::start(engine, options());
    let mut stream = service.connect();
    let body = points().to_string();
    let head = format!(
        "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let job = jobs.recv_timeout(PATIENCE).unwrap();
    assert!(!job.reply.is_closed());
    stream.shutdown(Shutdown::Both).unwrap();
    drop(stream);
    await_that(|| job.reply.is_closed());
    await_that(|| jobs_empty(&service));
}
