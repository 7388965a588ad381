package release

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/sluice-mesh/sluice/e2e/image"
)

// Home is the URL of the project.
const Home = "https://github.com/sluice-mesh/sluice"

// Architectures contains the values of GOARCH to build for.
var Architectures = []string{"amd64", "arm64"}

// The programs of a release. The image contains the first three.
const (
	Agent  = "sluice-node"
	Plugin = "sluice-cni"
	Rules  = "rules"
	Client = "kubectl-sluice"
)

// sourceDirs contains the directories of the programs in the checkout.
var sourceDirs = map[string]string{
	Agent: "./install/cmd/sluice-node", Plugin: "./plugin/cmd/sluice-cni",
	Rules:  "./rules/cmd/rules",
	Client: "./install/cmd/kubectl-sluice",
}

// A Release describes what is built, and from which commit.
type Release struct {
	// Source is the directory of a clean checkout of Commit. Out is the output directory. If it
	// exists, it must be empty; otherwise, Build creates it.
	Source, Out string
	// Version is a semantic version with the prefix v.
	Version string
	// Commit is the full hash of the commit. Time is the time of the commit.
	Commit string
	Time   time.Time
	// Hub is the registry and the path prefix of the image and the chart, such as
	// ghcr.io/sluice-mesh.
	Hub string
	// Key signs the checksums, the image and the chart. If it is nil, there are no signatures.
	Key *ecdsa.PrivateKey
	// Progress receives the name of each step. It may be nil.
	Progress func(step string)

	artifacts []artifact // files that were written to Out
}

// An artifact is a file in Out.
type artifact struct {
	Name   string
	SHA256 string
}

// validVersion matches a semantic version without build metadata, which OCI tags do not allow.
var validVersion = regexp.MustCompile(
	`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z][0-9A-Za-z.-]*)?$`)

// versionNumber returns the version without the prefix v.
func (r *Release) versionNumber() string { return strings.TrimPrefix(r.Version, "v") }

// imageRef returns the full name of the image.
func (r *Release) imageRef() string { return r.Hub + "/sluice:" + r.versionNumber() }

// chartRef returns the full name of the chart.
func (r *Release) chartRef() string { return r.Hub + "/charts/sluice:" + r.versionNumber() }

// chartName returns the file name of the packaged chart.
func (r *Release) chartName() string { return "sluice-" + r.versionNumber() + ".tgz" }

// validate checks Version, Hub and Out, and returns an error that lists the invalid ones.
func (r *Release) validate() error {
	var errs []error
	if !validVersion.MatchString(r.Version) {
		errs = append(errs, fmt.Errorf("version %q: must be a semantic version with the prefix v "+
			"and without build metadata, such as v0.2.0", r.Version))
	}
	if r.Hub == "" || strings.ContainsAny(r.Hub, " @") {
		errs = append(errs,
			fmt.Errorf("hub %q: must be a registry and a path, such as ghcr.io/sluice-mesh", r.Hub))
	}
	if entries, err := os.ReadDir(r.Out); err == nil && len(entries) > 0 {
		errs = append(errs, fmt.Errorf("output directory %s: must be empty", r.Out))
	}
	return errors.Join(errs...)
}

// Build builds the release. It first validates Version, Hub and Out.
func (r *Release) Build(ctx context.Context) error {
	if err := r.validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return err
	}
	programs := map[string]map[string][]byte{} // content by architecture and name
	for _, arch := range Architectures {
		r.step("programs for " + arch)
		built, err := r.buildPrograms(ctx, arch)
		if err != nil {
			return err
		}
		programs[arch] = built
	}
	r.step("manuals and completions")
	docs, err := r.generateDocuments(ctx)
	if err != nil {
		return err
	}
	for _, arch := range Architectures {
		r.step("archives and packages for " + arch)
		if err := r.addArchives(arch, programs[arch], docs); err != nil {
			return err
		}
	}
	r.step("image")
	imageDigest, err := r.addImage(programs)
	if err != nil {
		return err
	}
	r.step("chart")
	if err := r.addChart(imageDigest); err != nil {
		return err
	}
	r.step("krew manifest, provenance, checksums and signatures")
	return r.finish(imageDigest)
}

// step reports the start of a step.
func (r *Release) step(name string) {
	if r.Progress != nil {
		r.Progress(name)
	}
}

// add writes a file to Out, and records it as an artifact.
func (r *Release) add(name string, content []byte) error {
	sum := sha256.Sum256(content)
	r.artifacts = append(r.artifacts, artifact{name, hex.EncodeToString(sum[:])})
	return os.WriteFile(filepath.Join(r.Out, name), content, 0o644)
}

// checksum returns the SHA-256 of an artifact in hexadecimal.
func (r *Release) checksum(name string) (string, error) {
	i := slices.IndexFunc(r.artifacts, func(a artifact) bool { return a.Name == name })
	if i < 0 {
		return "", fmt.Errorf("checksum of %s: no such artifact", name)
	}
	return r.artifacts[i].SHA256, nil
}

// addArchives writes the archives, packages and SPDX documents for an architecture.
func (r *Release) addArchives(arch string, programs map[string][]byte, docs documents) error {
	license, err := os.ReadFile(filepath.Join(r.Source, "LICENSE"))
	if err != nil {
		return err
	}
	files := append([]file{{"LICENSE", 0o644, license}}, docs.archiveFiles()...)
	for _, name := range slices.Sorted(slices.Values([]string{Agent, Plugin, Rules, Client})) {
		files = append(files, file{name, 0o755, programs[name]})
		if err := r.addSBOM(name, arch, programs[name]); err != nil {
			return err
		}
	}
	if err := r.addArchive(r.archiveName("sluice", arch), files); err != nil {
		return err
	}
	// krew requires a separate archive for kubectl-sluice.
	clientFiles := []file{{"LICENSE", 0o644, license}, {Client, 0o755, programs[Client]}}
	if err := r.addArchive(r.archiveName(Client, arch), clientFiles); err != nil {
		return err
	}
	return r.addPackages(arch, programs[Rules], license, docs)
}

// archiveName returns the file name of an archive for an architecture.
func (r *Release) archiveName(name, arch string) string {
	return fmt.Sprintf("%s_%s_linux_%s.tar.gz", name, r.versionNumber(), arch)
}

// addArchive writes an archive of the files.
func (r *Release) addArchive(name string, files []file) error {
	content, err := tarGzip(files, r.Time)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return r.add(name, content)
}

// addImage writes the image and returns its digest. programs contains the content of the programs
// by architecture and name.
func (r *Release) addImage(programs map[string]map[string][]byte) (string, error) {
	spec := image.Sluice(r.imageRef())
	spec.Labels["org.opencontainers.image.revision"] = r.Commit
	spec.Labels["org.opencontainers.image.created"] = r.Time.UTC().Format(time.RFC3339)
	for _, arch := range Architectures {
		built := programs[arch]
		spec.Platforms = append(spec.Platforms, image.Platform{
			Architecture: arch,
			Root: fstest.MapFS{
				"usr/local/bin/" + Agent: {Data: built[Agent]},
				"usr/local/bin/" + Rules: {Data: built[Rules]},
				"opt/cni/bin/" + Plugin:  {Data: built[Plugin]},
			},
		})
	}
	var out bytes.Buffer
	report, err := image.Write(&out, spec)
	if err != nil {
		return "", fmt.Errorf("write the image: %w", err)
	}
	return report.Digest, r.add(r.imageName(), out.Bytes())
}

// imageName returns the file name of the image.
func (r *Release) imageName() string {
	return fmt.Sprintf("sluice_%s_image.tar", r.versionNumber())
}

// finish writes the files that depend on the artifacts written before.
func (r *Release) finish(imageDigest string) error {
	if err := r.addKrew(); err != nil {
		return err
	}
	if err := r.addProvenance(imageDigest); err != nil {
		return err
	}
	if r.Key != nil {
		if err := r.addSignatures(imageDigest); err != nil {
			return err
		}
	}
	var sums strings.Builder
	for _, a := range slices.SortedFunc(slices.Values(r.artifacts), func(a, b artifact) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		fmt.Fprintf(&sums, "%s  %s\n", a.SHA256, a.Name)
	}
	if err := r.add("SHA256SUMS", []byte(sums.String())); err != nil {
		return err
	}
	if r.Key == nil {
		return nil
	}
	signature, err := sign(r.Key, []byte(sums.String()))
	if err != nil {
		return err
	}
	return r.add("SHA256SUMS.sig", []byte(signature))
}
