package suite_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing/fstest"
	"time"

	"github.com/sluice-mesh/sluice/e2e/image"
	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// bin is the directory of the Makefile's programs.
const bin = "../../bin"

// istioCNIImage is the name of istio-cni's image, which also contains the host's nft for ambient
// mode.
const istioCNIImage = "mesh.test/istio-cni:e2e"

// sluiceArchive is the archive of Sluice's image, which "make image" writes.
var sluiceArchive = filepath.Join(bin, "image.tar")

// images maps the name of each image to the programs in it: the key is the path in the image, and
// the value is the path below bin.
var images = map[string]map[string]string{
	mesh.Image: {"usr/local/bin/mesh": "e2e/mesh", "usr/local/bin/rules": "rules"},
	istioCNIImage: {
		"usr/local/bin/install-cni": "e2e/install-cni", "opt/cni/bin/istio-cni": "istio-cni",
	},
}

// packImages writes the archives of images that are missing or older than their programs, and
// returns all archives. Tests on a virtual machine do not need istio-cni.
func packImages() ([]string, error) {
	var archives []string
	dir := filepath.Join(bin, "e2e", "images")
	errs := []error{os.MkdirAll(dir, 0o755)}
	for ref, programs := range images {
		if onVM() && ref == istioCNIImage {
			continue
		}
		name, _, _ := strings.Cut(path.Base(ref), ":")
		archive := filepath.Join(dir, name+".tar")
		if ref == istioCNIImage {
			if err := addNFT(programs); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if err := packImage(archive, ref, programs); err != nil {
			errs = append(errs, fmt.Errorf("image %s: %w", ref, err))
		}
		archives = append(archives, archive)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w\nrun \"make e2e\"", err)
	}
	return archives, nil
}

// addNFT adds the host's program nft and its libraries to the programs of an image.
func addNFT(programs map[string]string) error {
	file, err := exec.LookPath("nft")
	if err != nil {
		return err
	}
	programs["usr/local/bin/nft"] = file
	list, err := exec.Command("ldd", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ldd %s: %w: %s", file, err, list)
	}
	for word := range strings.FieldsSeq(string(list)) {
		if filepath.IsAbs(word) {
			programs[strings.TrimPrefix(word, "/")] = word
		}
	}
	return nil
}

// packImage writes the archive of an image, unless the archive is newer than all programs. The
// programs map paths in the image to paths below bin or absolute paths of the host.
func packImage(archive, ref string, programs map[string]string, entrypoint ...string) error {
	root, written := fstest.MapFS{}, modTime(archive)
	upToDate := !written.IsZero()
	for target, program := range programs {
		file := program
		if !filepath.IsAbs(file) {
			file = filepath.Join(bin, program)
		}
		upToDate = upToDate && modTime(file).Before(written)
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		root[target] = &fstest.MapFile{Data: content, Mode: 0o755}
	}
	if upToDate {
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

// modTime returns the modification time of a file, or zero if it does not exist.
func modTime(file string) time.Time {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
