//! ROS messages: no bytes panic in any decoder, and what is decoded is encoded and decoded again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sensorium_fuzz::io::cdr::CdrError;
use sensorium_fuzz::io::messages::*;

/// Encoders that cannot fail, beside those that can.
trait Encoded {
    fn bytes(self) -> Result<Vec<u8>, CdrError>;
}

impl Encoded for Vec<u8> {
    fn bytes(self) -> Result<Vec<u8>, CdrError> {
        Ok(self)
    }
}

impl Encoded for Result<Vec<u8>, CdrError> {
    fn bytes(self) -> Result<Vec<u8>, CdrError> {
        self
    }
}

macro_rules! there_and_back {
    ($bytes:expr, $($message:ident),+ $(,)?) => {$(
        if let Ok(message) = $message::decode($bytes) {
            let written = message.encode().bytes().unwrap();
            let again = $message::decode(&written).unwrap();
            // Bytes, because NaN is not equal to itself.
            assert_eq!(again.encode().bytes().unwrap(), written);
        }
    )+};
}

fuzz_target!(|bytes: &[u8]| {
    there_and_back!(
        bytes,
        CameraInfoMsg,
        ClockMsg,
        CompressedImageMsg,
        DetectedObjectsMsg,
        DetectedObjectsWithFeatureMsg,
        DiagnosticArrayMsg,
        Float64StampedMsg,
        ImageMsg,
        ImuMsg,
        OdometryMsg,
        PointCloud2Msg,
        PoseStampedMsg,
        PoseWithCovarianceStampedMsg,
        PublishedTimeMsg,
        StringMsg,
        TfMsg,
        TwistStampedMsg,
        TwistWithCovarianceStampedMsg,
    );
    if let Ok(message) = CompressedImageMsg::decode(bytes) {
        let _ = CompressedFormat::parse(message.format);
    }
});
