#![no_main]
//! See `outrider_tests::parsers::certificate_request`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outrider_tests::parsers::certificate_request(bytes));
