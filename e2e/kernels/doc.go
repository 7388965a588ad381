// Package kernels runs our tests on real kernels other than the host's: older ones, ones without
// the modules of one engine, and another architecture. Each boots in an emulated machine from
// Debian's package, with an initramfs that has its modules, our commands and tests, and the
// programs that the tests compare with; nothing is installed, and nothing of the host is used but
// qemu.
//
// What was measured is a table in e2e/README.md, and a difference between the two a failure.
package kernels
