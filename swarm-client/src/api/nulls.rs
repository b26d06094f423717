//! Removes null from the values that fields of a CRD allow.
//!
//! The generated schema of an optional field allows null. Then the API server stores a null. The
//! rules of the CRD treat it as absent, and the policies in `deploy/` treat it as present. If the
//! schema does not allow null, the API server drops such a field before it asks any policy.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// Removes null from the values of all fields.
pub(super) fn disallow(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()).for_each(in_schema);
    crd
}

fn in_schema(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.properties.iter_mut().flat_map(|all| all.values_mut()).for_each(in_schema);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(each)) => in_schema(each),
        Some(JSONSchemaPropsOrArray::Schemas(all)) => all.iter_mut().for_each(in_schema),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(each)) = &mut schema.additional_properties {
        in_schema(each);
    }
}
