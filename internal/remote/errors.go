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

package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// Error says why a workload cluster could not be used.
type Error struct {
	// Reason is a reason of the condition WorkloadReachable.
	Reason string

	// Message says what is wrong and what to do, in words of this package.
	Message string

	// err is the cause where it is safe to look into; nil otherwise.
	err error
}

// Error returns reason and message. Text from the kubeconfig or the server is
// never part of it.
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Unwrap returns the cause or nil. The text of the cause may come from the
// workload cluster: it is there for errors.Is and errors.As, not to be printed.
func (e *Error) Unwrap() error { return e.err }

// Classify finds the reason for an error that Probe, Connect or a request of a
// Client returned. It returns nil for nil.
//
// Answers that are about one object rather than the workload cluster (not found,
// conflict, invalid) have no reason of their own and become InternalError: callers
// look at those first, with the functions of k8s.io/apimachinery/pkg/api/errors.
func Classify(err error) *Error {
	if err == nil {
		return nil
	}
	if classified, ok := errors.AsType[*Error](err); ok {
		return classified
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return classifyStatus(status.Status(), err)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return responseTimeout()
	case errors.Is(err, context.Canceled):
		return canceled()
	}
	if classified := classifyNetwork(err); classified != nil {
		return classified
	}
	return &Error{
		Reason:  fleetv1.InternalErrorReason,
		Message: "an unexpected error came up; look into the manager's log",
		err:     err,
	}
}

// classifyStatus finds the reason for an HTTP status above 399.
func classifyStatus(status metav1.Status, err error) *Error {
	switch code := int(status.Code); {
	case code == http.StatusUnauthorized:
		return &Error{
			Reason: fleetv1.CredentialsRejectedReason,
			Message: "the workload cluster does not accept the kubeconfig's credentials (401); " +
				"put valid ones into the kubeconfig Secret",
			err: err,
		}
	case code == http.StatusForbidden:
		return &Error{
			Reason: fleetv1.AccessDeniedReason,
			Message: "the workload cluster denied a request (403); " +
				"the kubeconfig's user needs the rights of a cluster admin",
			err: err,
		}
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return &Error{
			Reason:  fleetv1.ServerErrorReason,
			Message: "the workload cluster's API server answered with an error of its own (5xx or 429)",
			err:     err,
		}
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return notKubernetes("is not an answer of a Kubernetes API server")
	}
	return &Error{
		Reason:  fleetv1.InternalErrorReason,
		Message: "the workload cluster did not accept a request (4xx); look into the manager's log",
		err:     err,
	}
}

// classifyNetwork finds the reason for an error of the network, TLS or HTTP. It
// returns nil for an error of another kind. The texts of such errors can hold what
// the server sent, so the cause is not kept.
func classifyNetwork(err error) *Error {
	var (
		classified   *Error
		verification *tls.CertificateVerificationError
		record       tls.RecordHeaderError
		dns          *net.DNSError
		op           *net.OpError
		network      net.Error
	)
	switch {
	case errors.As(err, &classified):
		return classified
	case errors.As(err, &verification):
		return &Error{
			Reason: fleetv1.ServerCertificateInvalidReason,
			Message: "the server's certificate is not valid for this address, or not signed by the kubeconfig's " +
				"certificate authority; check server, certificate-authority-data and tls-server-name",
		}
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return notKubernetes("is not TLS")
	case errors.As(err, &op) && op.Op == "remote error":
		// This is how crypto/tls marks an alert that the other side sent. The type of
		// the alert is not exported, but its text is from a fixed list.
		if text := op.Err.Error(); strings.Contains(text, "certificate") || strings.Contains(text, "access denied") {
			return &Error{
				Reason: fleetv1.ClientCertificateRejectedReason,
				Message: "the server refused the kubeconfig's client certificate in the TLS handshake; " +
					"put a valid one into the kubeconfig Secret",
			}
		}
		return connectionFailed("the server broke off the TLS handshake")
	case errors.As(err, &dns):
		return connectionFailed("the server's name could not be resolved")
	case errors.Is(err, syscall.ECONNREFUSED):
		return connectionFailed("the connection was refused")
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return connectionFailed("there is no route to the server")
	case errors.As(err, &network) && network.Timeout():
		return connectionFailed("no connection came about in time")
	case strings.Contains(err.Error(), "malformed"):
		// Net/http has no type for what it cannot parse.
		return notKubernetes("is not HTTP")
	case strings.Contains(err.Error(), "response header"):
		// Nor has it one for headers beyond its limit.
		return responseTooLarge()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &op):
		return connectionBroke()
	}
	return nil
}

func connectionFailed(what string) *Error {
	return &Error{
		Reason:  fleetv1.ConnectionFailedReason,
		Message: what + "; check the server in the kubeconfig and the way there",
	}
}

func connectionBroke() *Error {
	return connectionFailed("the connection broke before the answer was complete")
}

func notKubernetes(what string) *Error {
	return &Error{
		Reason:  fleetv1.NotKubernetesReason,
		Message: "what answers at the kubeconfig's server " + what + "; check the server in the kubeconfig",
	}
}

func responseTimeout() *Error {
	return &Error{
		Reason:  fleetv1.ResponseTimeoutReason,
		Message: "the server did not end its answer in time",
	}
}

func redirected() *Error {
	return &Error{
		Reason: fleetv1.RedirectedReason,
		Message: "the server answered with a redirect, and redirects are not followed; " +
			"put the final address into the kubeconfig",
	}
}

func responseTooLarge() *Error {
	return &Error{
		Reason: fleetv1.ResponseTooLargeReason,
		Message: "the server's answer is larger than 4 MiB, or its headers than 64 KiB, " +
			"or it holds more values than any that was asked for",
	}
}

func addressDenied() *Error {
	return &Error{
		Reason: fleetv1.AddressDeniedReason,
		Message: "the server's address lies in a range that the manager must not connect to; " +
			"use another address, or change the manager's flag --denied-ranges",
	}
}

func canceled() *Error {
	return &Error{
		Reason:  fleetv1.InternalErrorReason,
		Message: "the attempt was given up before it ended",
		err:     context.Canceled,
	}
}
