#![no_main]
//! See `outrider_tests::parsers::etcd_config`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outrider_tests::parsers::etcd_config(bytes));
