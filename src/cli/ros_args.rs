//! Arguments of commands that are a node of the ROS 2 graph without a pipeline file.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use miette::{IntoDiagnostic, miette};

use crate::io::ros::wire::HashMode;
use crate::io::ros::zenoh::{
    SessionEnvironment, SessionSettings, ZenohNode, ZenohNodeSettings, domain_of_process,
};
use crate::io::ros::{NodeName, RosNode};

/// How a command takes part in the ROS 2 graph.
#[derive(Debug, Args)]
#[command(next_help_heading = "ROS 2")]
pub(super) struct RosArgs {
    /// ROS domain [default: what ROS_DOMAIN_ID says, or 0].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..=232))]
    domain: Option<u32>,
    /// The other nodes run on ROS 2 Humble, whose zenoh keys have no type hash.
    #[arg(long)]
    humble: bool,
    /// zenoh endpoint to connect to; can be given several times [default: a router on this machine].
    #[arg(long, value_name = "ENDPOINT")]
    connect: Vec<String>,
    /// zenoh endpoint to listen on; can be given several times.
    #[arg(long, value_name = "ENDPOINT")]
    listen: Vec<String>,
}

impl RosArgs {
    /// Whether keys have no type hash.
    pub(super) const fn is_humble(&self) -> bool {
        self.humble
    }

    /// Joins the graph as a node of this name, over zenoh. A message waits so long for room before it is dropped.
    ///
    /// # Errors
    /// The network cannot be joined.
    pub(super) fn join(&self, name: &str, patience: Duration) -> miette::Result<Arc<dyn RosNode>> {
        let domain = match self.domain {
            Some(domain) => domain,
            None => domain_of_process().into_diagnostic()?,
        };
        let node = ZenohNode::open(&ZenohNodeSettings {
            name: NodeName::new("/", name).into_diagnostic()?,
            domain,
            hash_mode: if self.humble {
                HashMode::Humble
            } else {
                HashMode::Rihs01
            },
            session: SessionSettings {
                connect: self.connect.clone(),
                listen: self.listen.clone(),
                patience: Some(patience),
                environment: SessionEnvironment::of_process().into_diagnostic()?,
            },
        });
        let node = node.map_err(|error| {
            miette!(
                help = "--connect and --listen name endpoints such as tcp/127.0.0.1:7447",
                "{error}"
            )
        })?;
        Ok(Arc::new(node))
    }
}
