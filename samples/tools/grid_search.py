"""scikit-learn's grid search, its fits on the site's nodes."""

import joblib
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from headway.bridges import joblib_backend

if __name__ == "__main__":
    joblib_backend.register()
    with joblib.parallel_config("headway", n_jobs=2, resources={"cpus": 0.5}):
        search = GridSearchCV(SVC(), {"C": [0.01, 1.0]}, cv=2).fit(*load_iris(return_X_y=True))
    print(search.best_params_)
