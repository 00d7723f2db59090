package apiserver

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Config configures a Client.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file. podd uses its current context.
	Kubeconfig string
	// BootstrapKubeconfig is the path of another kubeconfig, or empty. If it is set, Kubeconfig
	// need not be usable yet: the Client then uses the apiserver of BootstrapKubeconfig, and
	// requests wait for credentials (Ready).
	BootstrapKubeconfig string
	// UserAgent is "podd/VERSION".
	UserAgent string
	// QPS and Burst bound the requests for pods and what they need, other than watches; QPS 0
	// means no bound. As in the kubelet, some requests never wait for this bound: those that
	// show that the node lives (its Lease and its Node), reviews of others' requests, and
	// events, which have a bound of their own.
	QPS   float32
	Burst int
	// Log may be nil.
	Log *slog.Logger
	// Metrics gets rest_client_*; nil for none. Each Client needs a registry of its own.
	Metrics prometheus.Registerer
	// WrapTransport wraps the transport of all requests, for tests without an apiserver. It may be
	// nil.
	WrapTransport func(http.RoundTripper) http.RoundTripper
}

// contentType is the encoding of objects between podd and the apiserver. Protobuf costs a third
// of JSON's CPU at both ends.
const contentType = runtime.ContentTypeProtobuf

// requestTimeout bounds a request other than a watch. The kubelet has no such bound and closes
// all its connections if it cannot renew a lease. HTTP/2's own pings notice a dead connection
// after 45 s.
const requestTimeout = time.Minute

// Client makes a node's calls to one apiserver. Any goroutine may call its methods. All of them
// block until the response arrives.
type Client struct {
	conn                                                                              *connection
	core, coordination, authentication, authorization, certificates, certificatesBeta rest.Interface
	// unthrottled is core without the QPS bound.
	unthrottled             rest.Interface
	storage, node, resource rest.Interface
}

// Connect reads the kubeconfig. It makes no request, so an apiserver that does not respond is
// no error.
func Connect(c Config) (*Client, error) {
	from, err := loadKubeconfig(c.Kubeconfig)
	conn := &connection{
		kubeconfig: c.Kubeconfig, userAgent: c.UserAgent, rejectExpired: c.BootstrapKubeconfig != "", log: c.Log, ready: make(chan struct{}),
	}
	if conn.log == nil {
		conn.log = slog.New(slog.DiscardHandler)
	}
	if c.BootstrapKubeconfig != "" {
		if conn.notReadyReason = CheckKubeconfig(c.Kubeconfig); conn.notReadyReason != nil {
			from, err = loadKubeconfig(c.BootstrapKubeconfig)
		}
	}
	if err != nil {
		return nil, err
	}
	loaded := rest.CopyConfig(from)
	loaded.UserAgent = c.UserAgent
	loaded.ContentType, loaded.AcceptContentTypes = contentType, contentType+","+runtime.ContentTypeJSON
	loaded.WarningHandlerWithContext = rest.NoWarnings{} // deprecation warnings are for the object's author
	loaded.QPS, loaded.Burst = -1, 0                     // the limiter is shared by the groups
	if c.QPS > 0 {
		loaded.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, max(c.Burst, 1))
	}
	if conn.server, _, err = rest.DefaultServerUrlFor(loaded); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", c.Kubeconfig, err)
	}
	if conn.notReadyReason == nil {
		if _, err := conn.reload(); err != nil {
			return nil, err
		}
	}
	return newClient(c, loaded, conn)
}

// newScheme returns a scheme with the types of the API groups that podd uses.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, coordinationv1.AddToScheme,
		certificatesv1.AddToScheme, certificatesv1beta1.AddToScheme, storagev1.AddToScheme, nodev1.AddToScheme, resourcev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the API's types: %w", err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme, nil
}

// newClient makes the REST clients. All their requests go through one connection.
func newClient(c Config, loaded *rest.Config, conn *connection) (*Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	loaded.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	shared := &http.Client{Transport: conn}
	if c.WrapTransport != nil {
		shared.Transport = c.WrapTransport(conn)
	}
	if c.Metrics != nil {
		shared.Transport = countingTransport{newMetrics(c.Metrics), shared.Transport, conn.server.Host}
	}
	client := &Client{conn: conn}
	unthrottled := rest.CopyConfig(loaded)
	unthrottled.RateLimiter = nil
	for _, group := range []struct {
		of      *rest.Config
		path    string
		version schema.GroupVersion
		client  *rest.Interface
	}{
		{loaded, "/api", v1.SchemeGroupVersion, &client.core},
		{unthrottled, "/api", v1.SchemeGroupVersion, &client.unthrottled},
		{unthrottled, "/apis", coordinationv1.SchemeGroupVersion, &client.coordination},
		{unthrottled, "/apis", authenticationv1.SchemeGroupVersion, &client.authentication},
		{unthrottled, "/apis", authorizationv1.SchemeGroupVersion, &client.authorization},
		{loaded, "/apis", storagev1.SchemeGroupVersion, &client.storage},
		{loaded, "/apis", nodev1.SchemeGroupVersion, &client.node},
		{loaded, "/apis", resourcev1.SchemeGroupVersion, &client.resource},
		{loaded, "/apis", certificatesv1.SchemeGroupVersion, &client.certificates},
		{loaded, "/apis", certificatesv1beta1.SchemeGroupVersion, &client.certificatesBeta},
	} {
		made, err := restClient(group.of, shared, group.path, group.version)
		if err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", c.Kubeconfig, err)
		}
		*group.client = made
	}
	return client, nil
}

func restClient(loaded *rest.Config, shared *http.Client, path string, version schema.GroupVersion) (rest.Interface, error) {
	own := rest.CopyConfig(loaded)
	own.APIPath, own.GroupVersion = path, &version
	return rest.RESTClientForConfigAndClient(own, shared)
}

// Server returns the apiserver's URL, as it was when podd started.
func (c *Client) Server() string { return c.conn.server.String() }
