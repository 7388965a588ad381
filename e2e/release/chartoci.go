package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// The media types of a chart in a registry (helm.sh/docs/topics/registries).
const (
	chartConfigType = "application/vnd.cncf.helm.config.v1+json"
	chartLayerType  = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// A chartArtifact is an OCI artifact like the artifact that `helm push` creates, but without the
// time of the push. Therefore equal charts have equal digests, and a chart can be signed before it
// is pushed.
type chartArtifact struct {
	config, manifest []byte
	layer            v1.Layer
}

// newChartArtifact returns the artifact for a packaged chart.
func newChartArtifact(archive []byte) (v1.Image, error) {
	metadata, err := chartMetadata(archive)
	if err != nil {
		return nil, err
	}
	config, err := yaml.YAMLToJSON(metadata)
	if err != nil {
		return nil, err
	}
	c := &chartArtifact{config: config, layer: static.NewLayer(archive, chartLayerType)}
	digest, err := c.layer.Digest()
	if err != nil {
		return nil, err
	}
	configDigest, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, err
	}
	c.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: chartConfigType, Size: size, Digest: configDigest},
		Layers: []v1.Descriptor{{
			MediaType: chartLayerType, Size: int64(len(archive)), Digest: digest,
		}},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(c)
}

// RawConfigFile implements partial.CompressedImageCore.
func (c *chartArtifact) RawConfigFile() ([]byte, error) { return c.config, nil }

// MediaType implements partial.CompressedImageCore.
func (c *chartArtifact) MediaType() (types.MediaType, error) {
	return types.OCIManifestSchema1, nil
}

// RawManifest implements partial.CompressedImageCore.
func (c *chartArtifact) RawManifest() ([]byte, error) { return c.manifest, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (c *chartArtifact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) {
	return c.layer, nil // the only layer
}

// chartMetadata returns the Chart.yaml of a packaged chart.
func chartMetadata(archive []byte) ([]byte, error) {
	uncompressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	for r := tar.NewReader(uncompressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("chart: contains no Chart.yaml")
		}
		if err != nil {
			return nil, fmt.Errorf("read the chart: %w", err)
		}
		if header.Name == "sluice/Chart.yaml" {
			return io.ReadAll(r)
		}
	}
}
