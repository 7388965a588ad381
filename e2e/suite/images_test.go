package suite_test

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing/fstest"
	"time"

	"github.com/sluice-mesh/sluice/e2e/image"
	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// bin is where the Makefile puts what it builds.
const bin = "../../bin"

// istioCNIImage is that of the real istio-cni.
const istioCNIImage = "mesh.test/install-cni:e2e"

// sluiceArchive is Sluice's image, as "make image" writes it.
var sluiceArchive = filepath.Join(bin, "image.tar")

// packed are the images that are packed here: programs of bin by their places.
var packed = map[string]map[string]string{
	mesh.Image: {"usr/local/bin/mesh": "e2e/mesh", "usr/local/bin/rules": "rules"},
	istioCNIImage: {
		"usr/local/bin/install-cni": "e2e/install-cni", "opt/cni/bin/istio-cni": "istio-cni",
	},
}

// packImages packs the images that are not packed yet, or of which a program was built since, and
// returns the archives of all. What is not built is an error that says so. The tests on a virtual
// machine do not need istio-cni.
func packImages() ([]string, error) {
	var archives []string
	dir := filepath.Join(bin, "e2e", "images")
	errs := []error{os.MkdirAll(dir, 0o755)}
	for ref, programs := range packed {
		if onVM() && ref == istioCNIImage {
			continue
		}
		name, _, _ := strings.Cut(path.Base(ref), ":")
		archive := filepath.Join(dir, name+".tar")
		if err := pack(archive, ref, programs); err != nil {
			errs = append(errs, fmt.Errorf("image %s: %w", ref, err))
		}
		archives = append(archives, archive)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w\n\"make e2e\" builds all of it", err)
	}
	return archives, nil
}

// pack writes the archive of an image with programs of bin by their places, unless it is newer than
// all of them.
func pack(archive, ref string, programs map[string]string, entrypoint ...string) error {
	root, packed := fstest.MapFS{}, builtAt(archive)
	fresh := !packed.IsZero()
	for place, program := range programs {
		file := filepath.Join(bin, program)
		fresh = fresh && builtAt(file).Before(packed)
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		root[place] = &fstest.MapFile{Data: content, Mode: 0o755}
	}
	if fresh {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(archive), ".")
	if err != nil {
		return err
	}
	_, err = image.Write(f, image.Spec{
		Ref: ref, Entrypoint: entrypoint, User: "65532:65532", Env: []string{"PATH=/usr/local/bin"},
		Platforms: []image.Platform{{Architecture: runtime.GOARCH, Root: root}},
	})
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), archive)
}

// builtAt is when a file was written; zero if there is none.
func builtAt(file string) time.Time {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
