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

package lightapi

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes/scheme"
)

var serviceAccounts = schema.GroupResource{Resource: "serviceaccounts"}

// requestToken issues a token of a service account that is there. It looks like one of a
// real server, without a signature, and is accepted until RevokeToken.
func (s *Server) requestToken(w http.ResponseWriter, r *http.Request, t target) error {
	account := s.store.get(t.GroupResource(), t.key())
	if account == nil {
		return apierrors.NewNotFound(t.GroupResource(), t.name)
	}
	body, err := readBody(r)
	if err != nil {
		return err
	}
	request := &authenticationv1.TokenRequest{}
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, request); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("reading the request for a token: %v", err))
	}
	seconds := int64(3600)
	if wanted := request.Spec.ExpirationSeconds; wanted != nil {
		seconds = cmp.Or(*wanted, seconds)
	}
	issued := time.Now()
	expires := issued.Add(time.Duration(seconds) * time.Second)
	subject := serviceaccount.MakeUsername(t.namespace, t.name)
	claims, err := json.Marshal(map[string]any{
		"sub": subject, "iat": issued.Unix(), "exp": expires.Unix(),
		"kubernetes.io": map[string]any{"serviceaccount": map[string]any{"name": t.name, "uid": account.GetUID()}},
	})
	if err != nil {
		return err
	}
	token := fmt.Sprintf("e30.%s.%s", base64.RawURLEncoding.EncodeToString(claims), rand.Text())
	s.AllowToken(token, subject)
	request.TypeMeta = metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenRequest"}
	request.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expires)}
	writeJSON(w, http.StatusCreated, request)
	return nil
}
