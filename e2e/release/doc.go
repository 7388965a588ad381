// Package release builds the files of a release of Sluice: archives of static programs, packages
// for Debian and RPM, the image as an OCI layout, the Helm chart with the digest of the image, the
// manifest for krew, shell completions, man pages, SPDX documents, SLSA provenance, checksums and
// signatures.
//
//	r := release.Release{
//		Source: "../..", Out: "dist", Version: "v0.2.0", Commit: commit, Time: t,
//		Hub: "ghcr.io/sluice-mesh",
//	}
//	err := r.Build(ctx)
//	err = r.Push(ctx)
//
// Releases are reproducible: all times are the time of the commit, owners and modes are fixed, and
// signatures are deterministic (RFC 6979).
package release
