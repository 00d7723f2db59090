package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"podd/test/e2e/testnode"
)

// ErrNotFound is what the apiserver says of what it does not have.
var ErrNotFound = errors.New("the apiserver has no such object")

// Object is a document: what Apply sends and Get returns.
type Object = map[string]any

// Client gives documents to an apiserver and takes them away. Its methods are safe
// for concurrent use and block for as long as the apiserver does.
type Client struct {
	url, token string
	http       *http.Client
}

// newClient trusts the certificate in a file and shows a token.
func newClient(url, token, certificate string) (*Client, error) {
	text, err := os.ReadFile(certificate)
	if err != nil {
		return nil, fmt.Errorf("read the apiserver's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", certificate)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 8}
	return &Client{url: url, token: token, http: &http.Client{Transport: transport, Timeout: 30 * time.Second}}, nil
}

// kinds are the documents that tests have, and where they live.
var kinds = map[string]struct {
	prefix, resource string
	clusterWide      bool
}{
	"ConfigMap":             {"/api/v1", "configmaps", false},
	"Secret":                {"/api/v1", "secrets", false},
	"Pod":                   {"/api/v1", "pods", false},
	"Namespace":             {"/api/v1", "namespaces", true},
	"PersistentVolume":      {"/api/v1", "persistentvolumes", true},
	"PersistentVolumeClaim": {"/api/v1", "persistentvolumeclaims", false},
	"CSIDriver":             {"/apis/storage.k8s.io/v1", "csidrivers", true},
	"CSINode":               {"/apis/storage.k8s.io/v1", "csinodes", true},
	"VolumeAttachment":      {"/apis/storage.k8s.io/v1", "volumeattachments", true},
	"RuntimeClass":          {"/apis/node.k8s.io/v1", "runtimeclasses", true},
	"ResourceClaim":         {"/apis/resource.k8s.io/v1", "resourceclaims", false},
	"ResourceSlice":         {"/apis/resource.k8s.io/v1", "resourceslices", true},
	"Node":                  {"/api/v1", "nodes", true},
	"ServiceAccount":        {"/api/v1", "serviceaccounts", false},
	"Service":               {"/api/v1", "services", false},
	"ClusterRole":           {"/apis/rbac.authorization.k8s.io/v1", "clusterroles", true},
	"ClusterRoleBinding":    {"/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", true},
	"RoleBinding":           {"/apis/rbac.authorization.k8s.io/v1", "rolebindings", false},
	"APIService":            {"/apis/apiregistration.k8s.io/v1", "apiservices", true},
	"Deployment":            {"/apis/apps/v1", "deployments", false},
	"ClusterTrustBundle":    {"/apis/certificates.k8s.io/v1", "clustertrustbundles", true},

	"PodCertificateRequest":     {"/apis/certificates.k8s.io/v1", "podcertificaterequests", false},
	"CertificateSigningRequest": {"/apis/certificates.k8s.io/v1", "certificatesigningrequests", true},

	"Lease": {"/apis/coordination.k8s.io/v1", "leases", false},
}

// locate is the path of an object's collection, and its name.
func locate(object Object) (collection, name string, err error) {
	kind, _ := object["kind"].(string)
	metadata, _ := object["metadata"].(map[string]any)
	name, _ = metadata["name"].(string)
	k, ok := kinds[kind]
	if !ok || name == "" {
		return "", "", fmt.Errorf("a document of kind %q and name %q cannot be given to the apiserver", kind, name)
	}
	if k.clusterWide {
		return k.prefix + "/" + k.resource, name, nil
	}
	namespace, _ := metadata["namespace"].(string)
	if namespace == "" {
		namespace = "default"
	}
	return path.Join(k.prefix, "namespaces", namespace, k.resource), name, nil
}

// Apply makes the object as the document says: a new one, or in the place of the one
// that is there, whatever version that has. The error is the apiserver's word.
func (c *Client) Apply(ctx context.Context, object Object) error {
	collection, name, err := locate(object)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, http.MethodPut, collection+"/"+name, object)
	if errors.Is(err, ErrNotFound) {
		_, err = c.do(ctx, http.MethodPost, collection, object)
	}
	return err
}

// Create makes a new object, with one request. The error is the apiserver's word.
func (c *Client) Create(ctx context.Context, object Object) error {
	collection, _, err := locate(object)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, http.MethodPost, collection, object)
	return err
}

// Delete removes the object. A pod with a grace period is there until the kubelet
// has ended it: Gone waits for that.
func (c *Client) Delete(ctx context.Context, object Object) error {
	collection, name, err := locate(object)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, http.MethodDelete, collection+"/"+name, nil)
	return err
}

// DeleteNow deletes a pod's object at once, as kubectl delete --force --grace-period=0 does:
// the kubelet has not ended it.
func (c *Client) DeleteNow(ctx context.Context, object Object) error {
	collection, name, err := locate(object)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, http.MethodDelete, collection+"/"+name+"?gracePeriodSeconds=0", nil)
	return err
}

// Put replaces the object that a document names by value, which has its resourceVersion.
func (c *Client) Put(ctx context.Context, object Object, value any) error {
	collection, name, err := locate(object)
	if err != nil {
		return err
	}
	_, err = c.put(ctx, collection+"/"+name, value)
	return err
}

// Get reads the object that a document names into another value of its type.
func (c *Client) Get(ctx context.Context, object Object, into any) error {
	collection, name, err := locate(object)
	if err != nil {
		return err
	}
	text, err := c.get(ctx, collection+"/"+name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decode %s: %w", name, err)
	}
	return nil
}

// Raw is the answer to a GET of a path.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) { return c.get(ctx, path) }

// PutStatus replaces the status of the object that a document names by that of value.
func (c *Client) PutStatus(ctx context.Context, object Object, value any) error {
	collection, name, err := locate(object)
	if err != nil {
		return err
	}
	_, err = c.put(ctx, collection+"/"+name+"/status", value)
	return err
}

// put replaces what is at a path by a value, and returns the answer.
func (c *Client) put(ctx context.Context, path string, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var whole Object
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	return c.do(ctx, http.MethodPut, path, whole)
}

// Follow calls seen with the type and the object of each event of a watch, those that are
// there first, until it returns false. path is a collection's, with a query or without. An
// apiserver ends a watch whose reader it finds slow: then it begins anew.
func (c *Client) Follow(ctx context.Context, path string, seen func(event string, object json.RawMessage) (more bool)) error {
	for {
		if err := c.watch(ctx, path, seen); !errors.Is(err, io.EOF) {
			return err
		}
	}
}

func (c *Client) watch(ctx context.Context, path string, seen func(event string, object json.RawMessage) (more bool)) error {
	query := "?"
	if strings.Contains(path, "?") {
		query = "&"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path+query+"watch=1", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := (&http.Client{Transport: c.http.Transport}).Do(request) // which lasts as long as ctx
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("watch %s: %s", path, response.Status)
	}
	for events := json.NewDecoder(response.Body); ; {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		if err := events.Decode(&e); err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
		if !seen(e.Type, e.Object) {
			return nil
		}
	}
}

// Gone returns when the apiserver has the object no more.
func (c *Client) Gone(ctx context.Context, object Object) error {
	collection, name, err := locate(object)
	if err != nil {
		return err
	}
	return testnode.Poll(ctx, 50*time.Millisecond, func() error {
		_, err := c.get(ctx, collection+"/"+name)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case err != nil:
			return testnode.Stop(err)
		}
		return fmt.Errorf("%s is still there", name)
	})
}

func (c *Client) get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

// do sends one request; object is nil where there is no body.
func (c *Client) do(ctx context.Context, method, path string, object Object) ([]byte, error) {
	var body io.Reader
	if object != nil {
		text, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	switch {
	case response.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%s %s: %w", method, path, ErrNotFound)
	case response.StatusCode >= 300:
		return nil, fmt.Errorf("%s %s: %s: %.500s", method, path, response.Status, answer)
	}
	return answer, nil
}
