package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
)

// Config is what a Client is made of.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file, whose current context is used.
	Kubeconfig string
	// UserAgent is "podd/VERSION".
	UserAgent string
	// QPS and Burst bound the requests other than watches; QPS 0 is no bound.
	QPS   float32
	Burst int
}

// contentType is what podd and apiserver encode objects as. Protobuf costs a third of
// JSON's CPU at both ends.
const contentType = runtime.ContentTypeProtobuf

// requestTimeout bounds a request other than a watch. The kubelet has none and closes
// all its connections if a lease cannot be renewed; HTTP/2's own pings notice a dead
// connection after 45 s.
const requestTimeout = time.Minute

// Client makes a node's calls to one apiserver. Its methods may be called by any
// goroutine; all block until the answer is there.
type Client struct {
	server                                            string
	core, coordination, authentication, authorization rest.Interface
	storage, node                                     rest.Interface
}

// Connect reads the kubeconfig. It makes no request: an apiserver that does not respond
// is no error.
func Connect(c Config) (*Client, error) {
	loaded, err := load(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	loaded.UserAgent = c.UserAgent
	loaded.ContentType, loaded.AcceptContentTypes = contentType, contentType+","+runtime.ContentTypeJSON
	loaded.WarningHandlerWithContext = rest.NoWarnings{} // of deprecated versions: for who wrote the object, not for the node
	loaded.QPS, loaded.Burst = -1, 0                     // the limiter is shared by the groups
	if c.QPS > 0 {
		loaded.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, max(c.Burst, 1))
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, coordinationv1.AddToScheme, storagev1.AddToScheme, nodev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the API's types: %w", err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	loaded.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	shared, err := rest.HTTPClientFor(loaded)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", c.Kubeconfig, err)
	}
	client := &Client{server: loaded.Host}
	for _, group := range []struct {
		path    string
		version schema.GroupVersion
		client  *rest.Interface
	}{
		{"/api", v1.SchemeGroupVersion, &client.core},
		{"/apis", coordinationv1.SchemeGroupVersion, &client.coordination},
		{"/apis", authenticationv1.SchemeGroupVersion, &client.authentication},
		{"/apis", authorizationv1.SchemeGroupVersion, &client.authorization},
		{"/apis", storagev1.SchemeGroupVersion, &client.storage},
		{"/apis", nodev1.SchemeGroupVersion, &client.node},
	} {
		if *group.client, err = restClient(loaded, shared, group.path, group.version); err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", c.Kubeconfig, err)
		}
	}
	return client, nil
}

func restClient(loaded *rest.Config, shared *http.Client, path string, version schema.GroupVersion) (rest.Interface, error) {
	own := rest.CopyConfig(loaded)
	own.APIPath, own.GroupVersion = path, &version
	return rest.RESTClientForConfigAndClient(own, shared)
}

// load returns the kubeconfig's current context as a client's configuration.
func load(path string) (*rest.Config, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	loaded, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("kubeconfig %s is empty: it must name a cluster, a user and a current-context", path)
	case err != nil:
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	case loaded.Host == "":
		return nil, fmt.Errorf("kubeconfig %s: %w", path, errors.New("the current context's cluster has no server"))
	}
	return loaded, nil
}

// Server is the apiserver's URL.
func (c *Client) Server() string { return c.server }
