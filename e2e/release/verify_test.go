package release

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// verify returns an error if sigstore's verifier does not accept the signature of the text.
func verify(key *ecdsa.PublicKey, text []byte, encoded string) error {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("decode the signature: %w", err)
	}
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		return err
	}
	return verifier.VerifySignature(bytes.NewReader(raw), bytes.NewReader(text))
}

// verifyImage returns an error if image, which contains signatures, contains no valid signature of
// the digest.
func verifyImage(key *ecdsa.PublicKey, image v1.Image, digest string) error {
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	for _, l := range manifest.Layers {
		layer, err := image.LayerByDigest(l.Digest)
		if err != nil {
			return err
		}
		content, err := layer.Compressed()
		if err != nil {
			return err
		}
		defer func() { _ = content.Close() }()
		text, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		if err := verify(key, text, l.Annotations[signatureAnnotation]); err != nil {
			return err
		}
		var signed payload.SimpleContainerImage
		if err := json.Unmarshal(text, &signed); err != nil {
			return err
		}
		if signed.Critical.Image.DockerManifestDigest == digest {
			return nil
		}
	}
	return fmt.Errorf("no signature of %s", digest)
}
