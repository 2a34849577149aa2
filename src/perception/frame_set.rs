//! What several sensors saw at one time.

use super::{Picture, Sweep};

/// What several sensors saw at one time. A model is given every sensor of its set each time, in the same order, so that
/// positions mean sensors; one that sent nothing is there without data.
#[derive(Debug, Clone, Copy)]
pub struct FrameSet<'a> {
    /// The stream of sets that it belongs to.
    pub stream: &'a str,
    /// Stamp of the set in nanoseconds: that of its earliest member, or of its reference where it has one.
    pub stamp_ns: i64,
    /// The sensors, in the order in which the pipeline lists them.
    pub members: &'a [SetMember<'a>],
    /// Whether a member is missing.
    pub partial: bool,
}

/// One sensor of a set.
#[derive(Debug, Clone, Copy)]
pub struct SetMember<'a> {
    /// Topic of the sensor.
    pub name: &'a str,
    /// Sensor stamp in nanoseconds; that of the set where the member is missing.
    pub stamp_ns: i64,
    /// Coordinate frame of the sensor; empty where the member is missing.
    pub frame_id: &'a str,
    /// What it saw; `None` where it is missing.
    pub data: Option<MemberData<'a>>,
}

/// What one sensor of a set saw.
#[derive(Debug, Clone, Copy)]
pub enum MemberData<'a> {
    /// An image.
    Image(Picture<'a>),
    /// A sweep; its stream is that of the set.
    Sweep(Sweep<'a>),
}

impl<'a> FrameSet<'a> {
    /// The member of a topic.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&'a SetMember<'a>> {
        self.members.iter().find(|member| member.name == name)
    }

    /// Topics of the members that are missing.
    pub fn missing(&self) -> impl Iterator<Item = &'a str> {
        let missing = self.members.iter().filter(|member| member.data.is_none());
        missing.map(|member| member.name)
    }
}
