// Package build builds the software of a Kubernetes node from Go modules. Modules in subdirectories
// pin the versions, so that the requirements of one program do not change the versions of another:
//
//	kubernetes  the control plane, kubelet, kube-proxy, kubectl, kubeadm and etcd, as one program;
//	            CoreDNS
//	kind        kind
//	crio        CRI-O
//	runtime     containerd, its shim and ctr, runc, crictl, and the CNI plugins
//
// The file systems of a virtual machine and of kind's node image are installed from Debian's
// packages by debootstrap.
//
// Building requires a module proxy. runc and CRI-O also require a C compiler and libseccomp. If
// libseccomp is not installed, its package is downloaded and unpacked, but not installed.
package build
