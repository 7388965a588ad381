// Package build makes the software of a Kubernetes node from Go modules, each at the version that a
// module of its own in a folder next to this file says, so that what one program requires never
// decides what another is built with:
//
//	kubernetes  the control plane, kubelet, kube-proxy, kubectl, kubeadm and etcd, as one program; CoreDNS, which shares most of it
//	crio        CRI-O
//	runtime     containerd, its shim and ctr, runc, crictl, and the CNI plugins
//
// The file system of a virtual machine is made of Debian's packages, by debootstrap.
//
// It needs the module proxy, and for runc a C compiler and libseccomp, which it unpacks from the
// distribution's packages, without installing them, where it is not there.
package build
