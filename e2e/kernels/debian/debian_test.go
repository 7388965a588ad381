package debian_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ulikunitz/xz"

	"github.com/sluice-mesh/sluice/e2e/kernels/debian"
)

var source = debian.Source{Archive: "debian", Suite: "bookworm", Arch: "amd64"}

func TestVersionsAreOrderedLikeDpkg(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want int
	}{
		{"6.1.192-2", "6.1.192-2", 0},
		{"6.1.99-1", "6.1.192-1", -1},
		{"6.12.115-1", "6.12.115.1-1", -1},
		{"1:1.0", "2.0", 1},
		{"1.0~rc1-1", "1.0-1", -1},
		{"1.0-1", "1.0-1+deb12u1", -1},
		{"1.0a", "1.0+", -1},
		{"1.0.1", "1.0-1", 1},
		{"1.007", "1.7", 0},
	} {
		a, b := debian.Package{Name: "p", Version: row.a}, debian.Package{Name: "p", Version: row.b}
		for _, packages := range [][]debian.Package{{a, b}, {b, a}} {
			want := packages[0] // the first one if the versions are equal
			switch row.want {
			case -1:
				want = b
			case 1:
				want = a
			}
			if got, err := debian.NewestOf(packages, "*"); err != nil || got != want {
				t.Errorf("newest of %v: %s, error %v, want %s", packages, got, err, want)
			}
		}
	}
}

func TestParseListReturnsTheFormattedList(t *testing.T) {
	list := []debian.Package{
		{Source: source, Name: "iptables", Version: "1.8.9-2", Path: "pool/i.deb", SHA256: "ab"},
		{Source: source, Name: "netbase", Version: "6.4", Path: "pool/n.deb", SHA256: "cd"},
	}
	got, err := debian.ParseList(debian.FormatList("a comment", list))
	if err != nil || !cmp.Equal(list, got) {
		t.Errorf("parsed list: error %v (-want +got)\n%s", err, cmp.Diff(list, got))
	}
	if _, err := debian.ParseList("# list\n\ndebian bookworm amd64\n"); err == nil ||
		!strings.Contains(err.Error(), "line 3") {
		t.Errorf("error %v, want an error that names line 3", err)
	}
}

// mirror serves files, and counts the requests.
func mirror(t *testing.T, files map[string]string) (debian.Mirror, *int) {
	t.Helper()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		content, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, content)
	}))
	t.Cleanup(server.Close)
	return debian.Mirror{URL: server.URL, Dir: filepath.Join(t.TempDir(), "packages")}, &requests
}

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

func TestFetchDownloadsOnceAndVerifiesTheChecksum(t *testing.T) {
	m, requests := mirror(t, map[string]string{"/debian/pool/a.deb": "content"})
	p := debian.Package{Source: source, Name: "a", Path: "pool/a.deb", SHA256: sum("content")}
	for range 2 {
		file, err := m.Fetch(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "content" {
			t.Errorf("the downloaded file contains %q, error %v, want %q", text, err, "content")
		}
	}
	if *requests != 1 {
		t.Errorf("%d requests to the mirror, want 1", *requests)
	}

	p.SHA256 = sum("other")
	if file, err := m.Fetch(t.Context(), p); err == nil || errors.Is(err, debian.ErrNotFound) {
		t.Errorf("file %s, error %v, want a checksum error", file, err)
	}
	if remaining, err := filepath.Glob(filepath.Join(m.Dir, ".part-*")); err != nil || len(remaining) > 0 {
		t.Errorf("temporary files %v, error %v, want none", remaining, err)
	}
	p.Path = "pool/gone.deb"
	if _, err := m.Fetch(t.Context(), p); !errors.Is(err, debian.ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
}

// compressed returns the content, compressed with xz.
func compressed(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := xz.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestNewestSearchesAllSources(t *testing.T) {
	index := func(versions ...string) string {
		var text strings.Builder
		for _, v := range versions {
			fmt.Fprintf(&text,
				"Package: linux-image-%s-cloud-amd64\nVersion: %s-1\nDescription: a kernel\n "+
					"of several lines\nFilename: pool/%s.deb\nSHA256: %s\n\n", v, v, v, sum(v))
		}
		return string(compressed(t, []byte(text.String()+
			"Package: linux-image-cloud-amd64\nVersion: 99\n")))
	}
	security := debian.Source{Archive: "debian-security", Suite: "bookworm-security", Arch: "amd64"}
	m, _ := mirror(t, map[string]string{
		"/debian/dists/bookworm/main/binary-amd64/Packages.xz": index("6.1.9",
			"6.1.50", "6.12.1"),
		"/debian-security/dists/bookworm-security/main/binary-amd64/Packages.xz": index("6.1.56",
			"6.1.7"),
	})
	absent := debian.Source{Archive: "debian", Suite: "gone", Arch: "amd64"}
	got, err := m.Newest(t.Context(), []debian.Source{source, absent, security},
		"linux-image-6.1.*-cloud-amd64")
	want := debian.Package{
		Source: security, Name: "linux-image-6.1.56-cloud-amd64", Version: "6.1.56-1",
		Path: "pool/6.1.56.deb", SHA256: sum("6.1.56"),
	}
	if err != nil || !cmp.Equal(want, got) {
		t.Errorf("newest package: error %v (-want +got)\n%s", err, cmp.Diff(want, got))
	}
	if p, err := m.Newest(t.Context(), []debian.Source{source}, "linux-image-7.*"); err == nil {
		t.Errorf("no package matches, but Newest returns %v, want an error", p)
	}
}

// deb writes a package with the files, and returns its path.
func deb(t *testing.T, headers []tar.Header, contents map[string]string) string {
	t.Helper()
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for _, h := range headers {
		h.Size = int64(len(contents[h.Name]))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, contents[h.Name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text := "!<arch>\n"
	for _, m := range []struct {
		name    string
		content []byte
	}{
		{"debian-binary", []byte("2.0\n")},
		{"control.tar.xz", []byte("odd")},
		{"data.tar.xz", compressed(t, data.Bytes())},
	} {
		text += fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", m.name, 0, 0, 0, "100644",
			len(m.content), m.content)
		if len(m.content)%2 == 1 {
			text += "\n"
		}
	}
	file := filepath.Join(t.TempDir(), "a.deb")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFilesOfAPackage(t *testing.T) {
	file := deb(t, []tar.Header{
		{Name: "./usr/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./usr/sbin/nft", Typeflag: tar.TypeReg, Mode: 0o755},
		{Name: "./usr/sbin/iptables", Typeflag: tar.TypeSymlink, Linkname: "nft", Mode: 0o777},
	}, map[string]string{"./usr/sbin/nft": "program"})
	var got []string
	err := debian.Files(file, func(f debian.File) error {
		content, err := io.ReadAll(f.Content)
		got = append(got, fmt.Sprintf("%s %o %s %s", f.Name, f.Perm, f.Link, content))
		return err
	})
	want := []string{"/usr/sbin/nft 755  program", "/usr/sbin/iptables 777 nft "}
	if err != nil || !cmp.Equal(want, got) {
		t.Errorf("files: error %v (-want +got)\n%s", err, cmp.Diff(want, got))
	}
}

func TestFilesRejectsInvalidPackages(t *testing.T) {
	none := func(debian.File) error { return nil }
	for name, content := range map[string]string{
		"empty": "", "text": "hello, world", "truncated": "!<arch>\ndebian-binary",
	} {
		file := filepath.Join(t.TempDir(), "a.deb")
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := debian.Files(file, none); err == nil {
			t.Errorf("%s: Files returned no error, want an error", name)
		}
	}
	hard := deb(t, []tar.Header{{Name: "./b", Typeflag: tar.TypeLink, Linkname: "./a"}}, nil)
	if err := debian.Files(hard, none); err == nil || !strings.Contains(err.Error(), "hard link") {
		t.Errorf("error %v, want an error about hard links", err)
	}
}
