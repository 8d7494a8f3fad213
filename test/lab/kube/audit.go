//go:build unix

/*
Copyright 2026 The capi-fleet Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package kube

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// markPath begins the request URI of the requests that mark a place in the log.
// Every API server answers /version and ignores its query.
const markPath = "/version?capi-fleet-mark="

// Event is one request that an API server has answered, or, with stage
// ResponseStarted, a watch that it has begun to answer.
type Event struct {
	// User and Groups are those that the request was authorized for: of the
	// impersonated user where it impersonates one.
	User   string
	Groups []string
	// Verb is that of authorization: get, list, watch, create, update, patch,
	// delete or deletecollection, and the HTTP method in small letters for a
	// request that is not about a resource.
	Verb string
	// Group is the API group, "" the core one. Group to Name are empty in a request
	// that is not about a resource, Namespace also for a cluster-scoped one.
	Group       string
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	// Code is the HTTP status of the answer, 0 where none was given.
	Code int
	// Stage is ResponseStarted, ResponseComplete or Panic.
	Stage      string
	RequestURI string
	UserAgent  string
	// AuthorizationReason names the RBAC binding and role that allowed the request.
	// It is empty where RBAC was not asked or said no.
	AuthorizationReason string
	// Received is when the request came in, Time when the stage was reached.
	Received, Time time.Time
}

// Mark is a moment in an audit log: the zero value is its beginning, else it comes from
// Mark of the same log.
type Mark struct {
	offset   int64
	received time.Time
}

// Received is when the request that stands for the mark came in; zero for the beginning.
func (m Mark) Received() time.Time { return m.received }

// AuditLog reads the log of one API server, also while it is written.
type AuditLog struct {
	path   string
	url    string
	client *http.Client
}

// Mark returns the moment in the log behind every request that had an effect when Mark
// was called. It needs a running API server.
func (l *AuditLog) Mark(ctx context.Context) (Mark, error) {
	info, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Mark{}, nil
	}
	if err != nil {
		return Mark{}, err
	}
	// Half a line may stand at the end, so the place found last is not a safe start:
	// the mark's own line is, and nothing before it is looked at.
	_, end, err := l.readToNewMark(ctx, info.Size())
	return end, err
}

// Since returns the requests that came in since the mark and were answered, in the order
// of the log: all of those that had been answered when Since was called, and none that
// only marks a place. It needs a running API server.
func (l *AuditLog) Since(ctx context.Context, mark Mark) ([]Event, error) {
	events, _, err := l.Next(ctx, mark)
	// What a request does can be seen before its answer is in the log.
	return slices.DeleteFunc(events, func(event Event) bool { return event.Received.Before(mark.received) }), err
}

// Next returns the requests answered since the mark, and a mark at which the next call goes
// on: so each request is in one of the answers, and in one only.
func (l *AuditLog) Next(ctx context.Context, mark Mark) ([]Event, Mark, error) {
	content, next, err := l.readToNewMark(ctx, mark.offset)
	if err != nil {
		return nil, Mark{}, err
	}
	events, err := ParseAudit(bytes.NewReader(content))
	if err != nil {
		return nil, Mark{}, fmt.Errorf("reading %s: %w", l.path, err)
	}
	return events, next, nil
}

// readToNewMark makes a request that can be told from all others, waits until it
// is in the log, and returns what stands between start and it, and itself as a mark. The API server logs a request before it ends the answer, so what was
// answered before stands before.
func (l *AuditLog) readToNewMark(ctx context.Context, start int64) ([]byte, Mark, error) {
	uri := markPath + rand.Text()
	if err := getOK(ctx, l.client, l.url+uri); err != nil {
		return nil, Mark{}, fmt.Errorf("marking a place in %s: %w", l.path, err)
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		content, err := l.readFrom(start)
		if err != nil {
			return nil, Mark{}, err
		}
		if before, after, found := bytes.Cut(content, []byte(uri)); found {
			if rest := bytes.IndexByte(after, '\n'); rest >= 0 {
				line := bytes.LastIndexByte(before, '\n') + 1
				end := len(before) + len(uri) + rest + 1
				var own loggedEvent
				err := json.Unmarshal(content[line:end], &own)
				return content[:line], Mark{start + int64(end), own.Received}, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, Mark{}, fmt.Errorf("waiting for a mark in %s: %w", l.path, ctx.Err())
		case <-ticker.C:
		}
	}
}

func (l *AuditLog) readFrom(start int64) ([]byte, error) {
	file, err := os.Open(l.path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	if _, err := file.Seek(start, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// loggedEvent has the fields of an event as audit.k8s.io/v1 writes it.
type loggedEvent struct {
	Stage            string            `json:"stage"`
	RequestURI       string            `json:"requestURI"`
	Verb             string            `json:"verb"`
	User             loggedUser        `json:"user"`
	ImpersonatedUser *loggedUser       `json:"impersonatedUser"`
	UserAgent        string            `json:"userAgent"`
	Received         time.Time         `json:"requestReceivedTimestamp"`
	StageTimestamp   time.Time         `json:"stageTimestamp"`
	Annotations      map[string]string `json:"annotations"`
	ObjectRef        struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

type loggedUser struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups"`
}

// ParseAudit reads the events of a log of which nothing more is written, or the
// writer of which may be in the middle of the last line: that one is left out.
// Requests of AuditLog that only mark a place are left out too.
func ParseAudit(log io.Reader) ([]Event, error) {
	content, err := io.ReadAll(log)
	if err != nil {
		return nil, err
	}
	var events []Event
	for number := 1; ; number++ {
		line, rest, whole := bytes.Cut(content, []byte{'\n'})
		if !whole {
			return events, nil
		}
		content = rest
		var logged loggedEvent
		if err := json.Unmarshal(line, &logged); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if !strings.HasPrefix(logged.RequestURI, markPath) {
			events = append(events, logged.event())
		}
	}
}

func (e *loggedEvent) event() Event {
	user := e.User
	if e.ImpersonatedUser != nil {
		user = *e.ImpersonatedUser
	}
	event := Event{
		User:        user.Username,
		Groups:      user.Groups,
		Verb:        e.Verb,
		Group:       e.ObjectRef.APIGroup,
		Resource:    e.ObjectRef.Resource,
		Subresource: e.ObjectRef.Subresource,
		Namespace:   e.ObjectRef.Namespace,
		Name:        e.ObjectRef.Name,
		Code:        e.ResponseStatus.Code,
		Stage:       e.Stage,
		RequestURI:  e.RequestURI,
		UserAgent:   e.UserAgent,
		Received:    e.Received,
		Time:        e.StageTimestamp,
	}
	if e.Annotations["authorization.k8s.io/decision"] == "allow" {
		event.AuthorizationReason = e.Annotations["authorization.k8s.io/reason"]
	}
	return event
}

// By returns the events of one user.
func By(user string, events []Event) []Event {
	var own []Event
	for _, event := range events {
		if event.User == user {
			own = append(own, event)
		}
	}
	return own
}

// Writes returns the events that ask to change something, whether the API server
// did so or not, and also when only as a dry run. Requests for a token count.
// What a manager writes about itself or only asks does not: Events, Leases,
// reviews, and the status of a FleetRegistrationPolicy.
func Writes(events []Event) []Event {
	var writes []Event
	for _, event := range events {
		if event.isWrite() {
			writes = append(writes, event)
		}
	}
	return writes
}

var writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

func (e *Event) isWrite() bool {
	if !slices.Contains(writeVerbs, e.Verb) || e.Resource == "" {
		return false
	}
	switch e.Group {
	case "":
		return e.Resource != "events"
	case "events.k8s.io":
		return false
	case "coordination.k8s.io":
		return e.Resource != "leases"
	case "authentication.k8s.io", "authorization.k8s.io":
		return false // nothing but reviews, and none is kept
	case fleetv1.GroupVersion.Group:
		return e.Resource != "fleetregistrationpolicies" || e.Subresource != "status"
	}
	return true
}
