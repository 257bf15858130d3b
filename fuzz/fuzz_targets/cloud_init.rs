#![no_main]
//! See `outrider_tests::parsers::cloud_init`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outrider_tests::parsers::cloud_init(bytes));
