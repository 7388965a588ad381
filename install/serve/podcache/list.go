package podcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/client-go/rest"
)

// maxListed is the maximum number of objects in a list, and of the objects that a watch reports. It
// limits the memory for small objects, of which responses could contain millions. Kubernetes
// supports 10,000 namespaces and 110 pods per node, and by default keeps 12,500 pods that have
// ended. It is a variable for tests.
var maxListed = 50_000

// maxListedBytes is the maximum size in bytes of an object in a list; client-go has the same limit
// for an event of a watch. An object that etcd accepts (1.5 MiB, --max-request-bytes) may have more
// than 9 MiB in JSON, because the API server escapes "<" as six bytes.
const maxListedBytes = 16 << 20

// readList sends a request for a list of pods or namespaces. It decodes one object of the response
// at a time and converts it by [trim], so that the cached forms determine the memory. client-go
// would decode the whole response at once: an API server ignores the limit of a request that it
// answers from its cache, and the pods of a node may have hundreds of MiB. received is the number
// of objects on earlier pages of the list.
func readList(
	ctx context.Context, request *rest.Request, resource string, received int,
) (*list, error) {
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	l, err := decodeList(body, received)
	if err == nil && l.GroupVersionKind() != group.WithKind(kinds[resource]+"List") {
		err = fmt.Errorf("its kind is %.100q of %.100q", l.Kind, l.APIVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("the response is not a list of %s: %w", resource, err)
	}
	return l, nil
}

// decodeList decodes a page of a list, and converts its objects by [trim]. received is the number
// of objects on earlier pages.
func decodeList(r io.Reader, received int) (*list, error) {
	bounded := &boundedReader{r: r}
	d := json.NewDecoder(bounded)
	// decode decodes the next value, or returns the next token if value is nil.
	decode := func(value any) (token json.Token, err error) {
		bounded.end = d.InputOffset() + maxListedBytes
		if value == nil {
			return d.Token()
		}
		return nil, d.Decode(value)
	}
	l := new(list)
	fields := map[string]any{
		"kind": &l.Kind, "apiVersion": &l.APIVersion, "metadata": &l.ListMeta,
	}
	token, err := decode(nil)
	if err == nil && token != json.Delim('{') {
		err = errors.New("it is not a JSON object")
	}
	for err == nil && d.More() {
		if token, err = decode(nil); err != nil {
			break
		}
		switch field, _ := token.(string); {
		case field == "items":
			l.Items, err = decodeItems(d, decode, received)
		case fields[field] != nil:
			_, err = decode(fields[field])
		default:
			_, err = decode(new(json.RawMessage))
		}
	}
	if err == nil {
		err = decodeEnd(decode, '}')
	}
	return l, err
}

// decodeItems decodes the array of objects, or null. received is the number of objects on earlier
// pages.
func decodeItems(
	d *json.Decoder, decode func(value any) (json.Token, error), received int,
) (items []object, err error) {
	if token, err := decode(nil); err != nil || token == nil {
		return nil, err
	} else if token != json.Delim('[') {
		return nil, errors.New("its items are not an array")
	}
	for d.More() {
		if received+len(items) == maxListed {
			return nil, fmt.Errorf("it has more than %d items", maxListed)
		}
		item := new(object)
		if _, err := decode(item); err != nil {
			return nil, err
		}
		trimmed, err := trim(item)
		if err != nil {
			return nil, err
		}
		items = append(items, *trimmed.(*object))
	}
	return items, decodeEnd(decode, ']')
}

// errTooLarge is the error for an object or a field that is larger than maxListedBytes.
var errTooLarge = fmt.Errorf("an object or a field is larger than %d MiB", maxListedBytes>>20)

// decodeEnd decodes the end of an object or an array, after [json.Decoder.More] has returned false.
// More also returns false if a value has exactly maxListedBytes, because it then cannot read the
// next byte. Other values may follow.
func decodeEnd(decode func(value any) (json.Token, error), end json.Delim) error {
	token, err := decode(nil)
	if err == nil && token != end {
		return errTooLarge
	}
	return err
}

// A boundedReader reads until end, the number of bytes that it may have read in total.
type boundedReader struct {
	r         io.Reader
	read, end int64
}

// Read implements [io.Reader].
func (b *boundedReader) Read(p []byte) (int, error) {
	if b.read >= b.end {
		return 0, errTooLarge
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.end-b.read)])
	b.read += int64(n)
	return n, err
}
