// Package kernels runs our tests on kernels other than the host's: on older ones, on ones without
// the modules of one backend, and on another architecture. Each is a Debian kernel that boots in an
// emulated machine. Its initramfs contains the kernel's modules, our commands and tests, and the
// programs that the tests compare with. Nothing is installed, and only qemu is used of the host.
//
// The results are a table in e2e/README.md. It is an error if they differ from it.
package kernels
