package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/image"
)

// program returns a minimal ELF program: a header, and PT_INTERP if dynamic is true.
func program(t *testing.T, machine elf.Machine, dynamic bool) []byte {
	t.Helper()
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{
			0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT),
		},
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Ehsize: 64, Phoff: 64, Phentsize: 56, Phnum: 1,
	}
	segment := elf.Prog64{Type: uint32(elf.PT_LOAD)}
	if dynamic {
		segment.Type = uint32(elf.PT_INTERP)
	}
	var out bytes.Buffer
	for _, part := range []any{header, segment} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func static(t *testing.T) []byte {
	t.Helper()
	return program(t, elf.EM_X86_64, false)
}

func spec(amd64, arm64 image.Platform) image.Spec {
	return image.Spec{
		Ref: "registry.example:5000/mesh/sluice:v1", Platforms: []image.Platform{amd64, arm64},
		Entrypoint: []string{"/usr/local/bin/p"}, User: "65532",
		Env: []string{"PATH=/usr/local/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.version": "v1", "org.opencontainers.image.source": "here",
		},
	}
}

func root(content []byte) fstest.MapFS {
	return fstest.MapFS{"usr/local/bin/p": {Data: content}, "opt/cni/bin/q": {Data: content}}
}

// unpack returns the files of an archive, and checks the digest of each blob.
func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = content
		if want, isBlob := strings.CutPrefix(h.Name, "blobs/sha256/"); isBlob && want != "" &&
			want != sum(content) {
			t.Errorf("%s has the digest %s", h.Name, sum(content))
		}
	}
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

type document struct {
	MediaType string
	Manifests []reference
	Config    reference
	Layers    []reference
	RootFS    struct {
		DiffIDs []string `json:"diff_ids"`
	}
	Architecture string
}

type reference struct {
	Digest      string
	Size        int
	Annotations map[string]string
	Platform    struct{ Architecture, OS string }
}

// follow returns the content that a reference refers to.
func follow(t *testing.T, files map[string][]byte, r reference) []byte {
	t.Helper()
	content, found := files["blobs/sha256/"+strings.TrimPrefix(r.Digest, "sha256:")]
	if !found || len(content) != r.Size {
		t.Fatalf("blob %s: found %v, %d bytes, want %d", r.Digest, found, len(content), r.Size)
	}
	return content
}

func read(t *testing.T, content []byte) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestArchiveContainsAnImageForEachPlatform(t *testing.T) {
	programs := map[string][]byte{"amd64": static(t), "arm64": program(t, elf.EM_AARCH64, false)}
	var out bytes.Buffer
	report, err := image.Write(&out, spec(
		image.Platform{Architecture: "amd64", Root: root(programs["amd64"])},
		image.Platform{Architecture: "arm64", Root: root(programs["arm64"])}))
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, out.Bytes())
	manifests := read(t, files["index.json"]).Manifests
	if len(manifests) != 1 || manifests[0].Digest != report.Digest ||
		manifests[0].Annotations[image.NameAnnotation] != "registry.example:5000/mesh/sluice:v1" ||
		manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v1" {
		t.Fatalf("index %+v, want one image %s with its name", manifests, report.Digest)
	}
	variants := read(t, follow(t, files, manifests[0])).Manifests
	for i, architecture := range []string{"amd64", "arm64"} {
		if variants[i].Platform.Architecture != architecture ||
			variants[i].Platform.OS != "linux" ||
			variants[i].Digest != report.Variants[i].Digest {
			t.Errorf("variant %+v in the index, reported as %+v", variants[i], report.Variants[i])
		}
		m := read(t, follow(t, files, variants[i]))
		config := read(t, follow(t, files, m.Config))
		if config.Architecture != architecture || len(m.Layers) != 1 {
			t.Errorf("configuration %+v and manifest %+v, want %s and one layer", config, m, architecture)
		}
		checkLayer(t, follow(t, files, m.Layers[0]), config.RootFS.DiffIDs, programs[architecture])
		if got := report.Variants[i]; got.Unpacked != int64(2*len(programs[architecture])) ||
			got.Compressed != int64(m.Layers[0].Size+m.Config.Size+variants[i].Size) {
			t.Errorf("reported variant %+v, want the sizes of its files and blobs", got)
		}
	}
}

func checkLayer(t *testing.T, compressed []byte, diffIDs []string, program []byte) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"sha256:" + sum(plain)}, diffIDs); diff != "" {
		t.Errorf("digests of the layers (-want +got)\n%s", diff)
	}
	got := map[string]int64{}
	for r := tar.NewReader(bytes.NewReader(plain)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || h.Mode != 0o755 || h.Uid != 0 || !h.ModTime.Equal(time.Unix(0, 0)) {
			t.Fatalf("entry %+v, want mode 0755, root as owner and time 0: %v", h, err)
		}
		got[h.Name] = h.Size
	}
	size := int64(len(program))
	want := map[string]int64{
		"opt/": 0, "opt/cni/": 0, "opt/cni/bin/": 0, "opt/cni/bin/q": size,
		"usr/": 0, "usr/local/": 0, "usr/local/bin/": 0, "usr/local/bin/p": size,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files and sizes (-want +got)\n%s", diff)
	}
}

// Times and modes of the files, and the path of their directory, do not change the image.
func TestSameFilesGiveTheSameBytes(t *testing.T) {
	content := static(t)
	write := func(modified time.Time, mode os.FileMode) (string, []byte) {
		dir := t.TempDir()
		for _, name := range []string{"usr/local/bin/p", "opt/cni/bin/q"} {
			file := filepath.Join(dir, name)
			for _, err := range []error{
				os.MkdirAll(filepath.Dir(file), mode|0o700), os.WriteFile(file, content, mode),
				os.Chtimes(file, modified, modified),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		var out bytes.Buffer
		s := spec(image.Platform{Architecture: "amd64", Root: os.DirFS(dir)},
			image.Platform{Architecture: "amd64", Root: os.DirFS(dir)})
		report, err := image.Write(&out, s)
		if err != nil {
			t.Fatal(err)
		}
		return report.Digest, out.Bytes()
	}
	digest, archive := write(time.Unix(1, 0), 0o600)
	otherDigest, otherArchive := write(time.Unix(2_000_000_000, 7), 0o755)
	if digest != otherDigest || !bytes.Equal(archive, otherArchive) {
		t.Errorf("digests %s and %s, equal archives: %t; want equal digests and archives", digest,
			otherDigest, bytes.Equal(archive, otherArchive))
	}
}

func TestProgramsWithTheirLoaderAreAccepted(t *testing.T) {
	loader := "/lib/loader"
	dynamic := program(t, elf.EM_X86_64, true)
	header := len(dynamic) - binary.Size(elf.Prog64{})
	var segment bytes.Buffer
	if err := binary.Write(&segment, binary.LittleEndian, elf.Prog64{
		Type: uint32(elf.PT_INTERP), Off: uint64(len(dynamic)), Filesz: uint64(len(loader) + 1),
	}); err != nil {
		t.Fatal(err)
	}
	dynamic = slices.Concat(dynamic[:header], segment.Bytes(), []byte(loader+"\x00"))
	for name, want := range map[string]bool{"lib/loader": true, "lib/other": false} {
		files := fstest.MapFS{
			"usr/local/bin/p": {Data: dynamic, Mode: 0o755}, name: {Data: static(t), Mode: 0o755},
		}
		_, err := image.Write(io.Discard, spec(image.Platform{
			Architecture: "amd64", Root: files,
		}, image.Platform{
			Architecture: "arm64", Root: root(program(t, elf.EM_AARCH64, false)),
		}))
		if accepted := err == nil; accepted != want {
			t.Errorf("program with %s: accepted %t, want %t; error %v", name, accepted, want, err)
		}
	}
}

func TestInvalidSpecsAreRejected(t *testing.T) {
	static, dynamic := static(t), program(t, elf.EM_X86_64, true)
	for _, c := range []struct {
		reason, ref, architecture string
		root                      fstest.MapFS
		want                      string
	}{
		{"dynamic program", "a/b:c", "amd64", root(dynamic), "not static"},
		{"other architecture", "a/b:c", "arm64", root(static), "not for arm64"},
		{"script", "a/b:c", "amd64", root([]byte("#!/bin/sh\n")), "not a program"},
		{"no files", "a/b:c", "amd64", fstest.MapFS{}, "no files"},
		{
			"symbolic link", "a/b:c", "amd64",
			fstest.MapFS{"p": {Mode: os.ModeSymlink, Data: []byte("q")}},
			"not a regular file",
		},
		{"unknown architecture", "a/b:c", "riscv64", root(static), "want amd64 or arm64"},
		{
			"name without a tag", "registry:5000/b", "amd64", root(static),
			"want registry/name:tag",
		},
	} {
		s := image.Spec{
			Ref: c.ref, Platforms: []image.Platform{{Architecture: c.architecture, Root: c.root}},
		}
		if _, err := image.Write(io.Discard, s); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.reason, err, c.want)
		}
	}
	if _, err := image.Write(io.Discard, image.Spec{Ref: "a/b:c"}); err == nil {
		t.Error("image without platforms: no error, want an error")
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestWriteReturnsErrors(t *testing.T) {
	s := image.Spec{
		Ref: "a/b:c", Platforms: []image.Platform{{Architecture: "amd64", Root: root(static(t))}},
	}
	if _, err := image.Write(fullDisk{}, s); err == nil ||
		!strings.Contains(err.Error(), "write the archive: no space left") {
		t.Errorf("error %v, want \"write the archive: no space left\" in it", err)
	}
}

func TestNameRejectsAnArchiveWithoutImages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty.tar")
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	content := []byte(`{"manifests":[]}`)
	if err := errors.Join(
		w.WriteHeader(&tar.Header{Name: "index.json", Mode: 0o644, Size: int64(len(content))}),
		func() error { _, err := w.Write(content); return err }(),
		w.Close(), os.WriteFile(file, archive.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	name, err := image.Name(file)
	if err == nil || !strings.HasSuffix(err.Error(), "index.json contains 0 images, want 1") {
		t.Errorf("name %q, error %v; want an error about 0 images", name, err)
	}
}
