package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// This file connects to the API server like a pod: four requests on two kinds of objects.

const (
	account      = "/var/run/secrets/kubernetes.io/serviceaccount/"
	sessionLabel = "swarm.k8slab.info/session"
	ackKey       = "swarm.k8slab.info/ack"
	stoppingKey  = "swarm.k8slab.info/stopping"
	formerKey    = "swarm.k8slab.info/predecessor"
)

type cluster struct {
	id        string
	former    string // The previous session of the same container, if none of its processes is left.
	terms     terms
	server    string
	namespace string
	http      http.Client
	patience  time.Duration // The time for the next answer about the Lease; 0 at first (rule 8).
}

// callPatiently calls for at most the patience. That doubles without an answer, and halves with a
// write.
func (c *cluster) callPatiently(method, path string, body, answer any) error {
	least := c.terms.renew / 2
	most := max((c.terms.duration-c.terms.stopTimeout)/4, least)
	span := max(c.patience, least)
	err := c.call(span, method, path, body, answer)
	if errors.Is(err, context.DeadlineExceeded) {
		c.patience = min(2*span, most)
	} else if err == nil && method != http.MethodGet {
		c.patience = max(span/2, least)
	}
	return err
}

// ackAnnotation is the JSON of the annotation ackKey. The operator refuses any other keys.
type ackAnnotation struct {
	Write      uint64 `json:"write"`
	DurationMs int64  `json:"durationMs"`
	ack
}

type metadata struct {
	Name            string            `json:"name,omitempty"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

type leaseObject struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Metadata   metadata  `json:"metadata"`
	Spec       leaseSpec `json:"spec"`
}

type leaseSpec struct {
	HolderIdentity       string `json:"holderIdentity"`
	LeaseDurationSeconds int    `json:"leaseDurationSeconds,omitempty"`
	RenewTime            string `json:"renewTime,omitempty"`
}

type viewObject struct {
	Metadata metadata `json:"metadata"`
	Spec     view     `json:"spec"`
}

func inCluster(id, former string, terms terms) (*cluster, error) {
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return nil, err
	}
	namespace, err := os.ReadFile(account + "namespace")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	// With HTTP/1.1 a request that timed out closes its connection, so no dead connection is kept.
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		TLSNextProto:    map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	server := "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	return &cluster{id, former, terms, server, strings.TrimSpace(string(namespace)), http.Client{Transport: transport}, 0}, nil
}

type status int

func (s status) Error() string { return http.StatusText(int(s)) }

// request sends one request. The caller closes the body.
func (c *cluster) request(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	// The token is read for each request: the kubelet replaces it long before it expires.
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return nil, err
	}
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 {
		answer.Body.Close()
		return nil, status(answer.StatusCode)
	}
	return answer.Body, nil
}

// call sends one request and reads the object in its answer.
func (c *cluster) call(span time.Duration, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	text, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer text.Close()
	return json.NewDecoder(text).Decode(answer)
}

func (c *cluster) leases() string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + c.namespace + "/leases"
}

func (c *cluster) views() string {
	return "/apis/swarm.k8slab.info/v1alpha1/namespaces/" + c.namespace + "/workerviews"
}

// firstFinished returns the finished jobs for one acknowledgement, up to its limit. The next ones
// follow when a view takes these away.
func firstFinished(all map[string]uint64) map[string]uint64 {
	first, bytes := map[string]uint64{}, 0
	for _, job := range slices.Sorted(maps.Keys(all)) {
		if bytes += 2*len(job) + 24; len(first) == 1000 || bytes > 128<<10 {
			break
		}
		first[job] = all[job]
	}
	return first
}

// object returns our Lease as it is after a write.
func (c *cluster) object(w write) leaseObject {
	w.ack.Finished = firstFinished(w.ack.Finished)
	text, _ := json.Marshal(ackAnnotation{w.number, c.terms.duration.Milliseconds(), w.ack})
	object := leaseObject{
		"coordination.k8s.io/v1", "Lease",
		metadata{
			Name:        c.id,
			Labels:      map[string]string{sessionLabel: "true"},
			Annotations: map[string]string{ackKey: string(text)},
		},
		leaseSpec{
			HolderIdentity:       c.id,
			LeaseDurationSeconds: max(1, int(c.terms.duration.Seconds())),
			RenewTime:            time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
		},
	}
	if w.stopping != nil {
		text, _ := json.Marshal(struct {
			Write uint64 `json:"write"`
			stopping
		}{w.number, *w.stopping})
		object.Metadata.Annotations[stoppingKey] = string(text)
	}
	if c.former != "" {
		object.Metadata.Annotations[formerKey] = c.former
	}
	if w.holder == closed {
		object.Spec.HolderIdentity = ""
	}
	if w.expected != nil {
		object.Metadata.UID, object.Metadata.ResourceVersion = w.expected.uid, w.expected.version
	}
	return object
}

func (c *cluster) writeLease(w write) any {
	method, path := http.MethodPost, c.leases()
	if w.expected != nil {
		method, path = http.MethodPut, c.leases()+"/"+c.id
	}
	var made leaseObject
	err := c.callPatiently(method, path, c.object(w), &made)
	switch {
	case err == nil:
		return written{w.number, stored{made.Metadata.UID, made.Metadata.ResourceVersion}}
	case errors.Is(err, status(http.StatusConflict)), errors.Is(err, status(http.StatusNotFound)):
		return conflict{w.number}
	}
	log.Print("the Lease was not written: ", err)
	return lost{w.number}
}

// readLease reads our Lease from the store itself: a GET without a version never reads a cache.
func (c *cluster) readLease(number uint64) any {
	var object leaseObject
	err := c.callPatiently(http.MethodGet, c.leases()+"/"+c.id, nil, &object)
	if errors.Is(err, status(http.StatusNotFound)) {
		return leaseRead{nil}
	}
	var annotation ackAnnotation
	if err == nil {
		err = json.Unmarshal([]byte(object.Metadata.Annotations[ackKey]), &annotation)
	}
	if err != nil {
		log.Print("the Lease cannot be read: ", err)
		return lost{number}
	}
	read := lease{stored{object.Metadata.UID, object.Metadata.ResourceVersion}, revoked, annotation.Write}
	switch object.Spec.HolderIdentity {
	case c.id:
		read.holder = held
	case "":
		read.holder = closed
	}
	return leaseRead{&read}
}

func (c *cluster) readView() any {
	var object viewObject
	if err := c.call(c.terms.renew/2, http.MethodGet, c.views()+"/"+c.id, nil, &object); err != nil {
		log.Print("the view cannot be read: ", err)
		return viewRead{nil}
	}
	return viewRead{&object.Spec}
}

// follow sends every state of our view that it sees, for ever. It lists the view, then watches it, and
// starts again with a list after any end of the watch.
func (c *cluster) follow(events chan<- any) {
	for {
		if err := c.watch(events); err != nil {
			log.Print("the watch ended: ", err)
			time.Sleep(c.terms.renew / 4)
		}
	}
}

func (c *cluster) watch(events chan<- any) error {
	query := url.Values{"fieldSelector": {"metadata.name=" + c.id}}
	var list struct {
		Metadata metadata     `json:"metadata"`
		Items    []viewObject `json:"items"`
	}
	if err := c.call(c.terms.renew, http.MethodGet, c.views()+"?"+query.Encode(), nil, &list); err != nil {
		return err
	}
	for _, object := range list.Items {
		events <- viewed{object.Spec}
	}
	// A watch lasts a minute, so that a connection that died silently is noticed.
	query.Set("watch", "true")
	query.Set("timeoutSeconds", "60")
	query.Set("resourceVersion", list.Metadata.ResourceVersion)
	ctx, cancel := context.WithTimeout(context.Background(), 70*time.Second)
	defer cancel()
	stream, err := c.request(ctx, http.MethodGet, c.views()+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer stream.Close()
	for lines := json.NewDecoder(stream); ; {
		var event struct {
			Type   string     `json:"type"`
			Object viewObject `json:"object"`
		}
		if err := lines.Decode(&event); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch event.Type {
		case "ADDED", "MODIFIED":
			events <- viewed{event.Object.Spec}
		case "ERROR": // 410 Gone: the watch missed too much; the list has the present state.
			return errors.New("the API server ended it")
		} // DELETED is ignored: the operator writes the view again, and until then our jobs go on.
	}
}
