package release

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature/payload"

	"github.com/sluice-mesh/sluice/e2e/image"
)

// ParseKey parses a PEM private key: a key of `cosign generate-key-pair` that is encrypted with
// password, or an unencrypted ECDSA key.
func ParseKey(pem, password []byte) (*ecdsa.PrivateKey, error) {
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(pem, cryptoutils.StaticPasswordFunc(password))
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	ecdsaKey, isECDSA := key.(*ecdsa.PrivateKey)
	if !isECDSA {
		return nil, fmt.Errorf("private key: type %T; must be an ECDSA key", key)
	}
	return ecdsaKey, nil
}

// sign returns the signature of a text in the format of `cosign sign-blob`. The signature is
// deterministic (RFC 6979).
func sign(key *ecdsa.PrivateKey, text []byte) (string, error) {
	digest := sha256.Sum256(text)
	signature, err := key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("sign a text: %w", err)
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

// Media type and annotation of a cosign signature in a registry.
const (
	signatureType       = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
)

// SignatureTag returns the tag under which cosign finds the signature of an image.
func SignatureTag(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".sig" }

// newImageSignature returns the image that contains the signature of an image or a chart in
// cosign's format.
func newImageSignature(key *ecdsa.PrivateKey, ref, digest string) (v1.Image, error) {
	tag, err := name.NewTag(ref)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(payload.Cosign{Image: tag.Context().Digest(digest)})
	if err != nil {
		return nil, err
	}
	signature, err := sign(key, text)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON)
	return mutate.Append(base, mutate.Addendum{
		Layer:       static.NewLayer(text, signatureType),
		Annotations: map[string]string{signatureAnnotation: signature},
	})
}

// addSignatures writes the signatures of the image and the chart as OCI layouts.
func (r *Release) addSignatures(imageDigest string) error {
	archive, err := os.ReadFile(filepath.Join(r.Out, r.chartName()))
	if err != nil {
		return err
	}
	chart, err := newChartArtifact(archive)
	if err != nil {
		return err
	}
	chartDigest, err := chart.Digest()
	if err != nil {
		return err
	}
	return errors.Join(
		r.addSignature(r.imageSignatureName(), r.imageRef(), imageDigest),
		r.addSignature(r.chartSignatureName(), r.chartRef(), chartDigest.String()),
	)
}

// addSignature writes a file with the signature of the image or chart whose name is ref.
func (r *Release) addSignature(fileName, ref, digest string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	signature, err := newImageSignature(r.Key, ref, digest)
	if err != nil {
		return fmt.Errorf("signature of %s: %w", ref, err)
	}
	var out bytes.Buffer
	signatureRef := tag.Context().Tag(SignatureTag(digest)).Name()
	if err := image.WriteLayout(&out, signatureRef, signature); err != nil {
		return err
	}
	return r.add(fileName, out.Bytes())
}

// imageSignatureName returns the file name of the image's signature.
func (r *Release) imageSignatureName() string {
	return fmt.Sprintf("sluice_%s_image-signature.tar", r.versionNumber())
}

// chartSignatureName returns the file name of the chart's signature.
func (r *Release) chartSignatureName() string {
	return fmt.Sprintf("sluice_%s_chart-signature.tar", r.versionNumber())
}
