#![no_main]
//! See `outrider_tests::parsers::helper_request`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outrider_tests::parsers::helper_request(bytes));
