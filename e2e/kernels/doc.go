// Package kernels runs Sluice's tests on kernels other than the host's: older kernels, kernels
// without the modules of one backend, and another architecture. Each Debian kernel boots in an
// emulated machine. The initramfs contains the kernel's modules, Sluice's commands and tests, and
// the programs that the tests compare with. Besides Go, the host needs only qemu;
// [InstallEmulators] can install it.
//
// The results are compared with the table in e2e/README.md.
package kernels
