//! How good results are: detections matched with the truth.
