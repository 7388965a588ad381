package release

import (
	"runtime"
	"strings"
	"time"
)

// addProvenance writes an in-toto statement with the SLSA provenance (slsa.dev/provenance/v1) of
// the artifacts and the image. The start of the build is the time of the commit, so that the file
// is reproducible.
func (r *Release) addProvenance(imageDigest string) error {
	image := artifact{r.imageRef(), strings.TrimPrefix(imageDigest, "sha256:")}
	return r.addRendered("provenance.intoto.json", "provenance.json", struct {
		*Release
		Home, Go, StartedOn string
		Subjects            []artifact
	}{
		r, Home, runtime.Version(), r.Time.UTC().Format(time.RFC3339),
		append([]artifact{image}, r.artifacts...),
	})
}
